"""A study of contrastive features: terminal, figures and report."""
