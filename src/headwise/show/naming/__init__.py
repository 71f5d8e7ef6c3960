"""Names as people see them: a table in the terminal, and a page with the cells that names hold and fail at."""
