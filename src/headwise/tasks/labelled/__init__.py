"""Prompts whose keys carry labels, for contrasts: binding, filter, and your own."""
