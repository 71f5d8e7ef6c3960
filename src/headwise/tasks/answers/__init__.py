"""Prompts with an answer, for circuits: ioi, greater-than, pronouns, facts, and your own."""
