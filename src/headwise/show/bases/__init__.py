"""A cell over the channels of its head, as a page."""
