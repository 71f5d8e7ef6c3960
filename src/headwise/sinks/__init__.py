"""Attention sinks: tokens on which heads park their attention, and the signals that make them do it."""
