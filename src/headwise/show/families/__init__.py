"""Families of circuits: terminal, figures and report."""
