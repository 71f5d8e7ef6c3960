"""Long work in a folder: what is asked, who works there, what is done already, and what is left to do."""
