"""Thousands of prompts, one circuit each, and what they share."""
