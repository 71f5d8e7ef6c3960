"""Channels: the singular pairs of a head's query–key form."""
