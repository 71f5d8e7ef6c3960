"""An explanation: terminal, figure and page."""
