"""The two lines of research that headwise stands on: each figure and table of them, made again by its commands."""
