"""A run of many traces on the terminal."""
