"""The toy worlds: figures and reports."""
