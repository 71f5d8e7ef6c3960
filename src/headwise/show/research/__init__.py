"""A work made again."""
