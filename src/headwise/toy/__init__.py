"""Controlled worlds with known answers: payload retrieval, singular-vector alignment, sparsity over training."""
