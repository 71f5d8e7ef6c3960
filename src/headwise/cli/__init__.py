"""The command line: ``main`` knows the verbs by name, one file holds each verb."""
