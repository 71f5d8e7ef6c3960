"""A circuit: terminal and page."""
