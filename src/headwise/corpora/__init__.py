"""Corpora by name: what can be measured on besides a user's own files, and how each is got."""
