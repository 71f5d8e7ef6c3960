"""Prompts to study: with labelled keys (``labelled``), with answers (``answers``), of your own from JSONL."""
