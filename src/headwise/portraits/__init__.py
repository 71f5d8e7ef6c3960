"""Everything known about a head on one page, and the atlas of all heads."""
