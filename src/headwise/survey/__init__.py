"""Thousands of prompts traced into one run folder."""
