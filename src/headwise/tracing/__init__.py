"""Signals: who wrote what a head reads, the smallest set that causes an attention, and whole circuits of them."""
