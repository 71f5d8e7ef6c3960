"""Attention sinks: terminal, figures and report."""
