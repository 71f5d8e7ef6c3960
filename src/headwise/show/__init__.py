"""Everything a person sees: terminal tables, figures, self-contained pages."""
