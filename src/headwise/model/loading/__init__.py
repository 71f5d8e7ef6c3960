"""Getting a model: the catalogue, downloads, conversions, and loading with every check."""
