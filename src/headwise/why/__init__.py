"""Why does this head attend here? What made the score, who wrote it, and proof, from one question to one answer."""
