"""Sparsity of attention: terminal and report."""
