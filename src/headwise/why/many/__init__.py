"""Many prompts: the table of one head, aggregated."""
