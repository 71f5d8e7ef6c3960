"""The local web app: one process, one port, for one person on this machine."""
