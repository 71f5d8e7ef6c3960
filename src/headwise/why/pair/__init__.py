"""Two prompts: why a head attends here in one of them and not in the other."""
