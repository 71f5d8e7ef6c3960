"""Circuits: the type, its files, and what happens to the model when parts of one are taken away."""
