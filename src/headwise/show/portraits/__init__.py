"""Portraits of heads, and the atlas of a model."""
