"""What every page and every notebook view is made with: escaping, pages, tables, and figures whose labels are text."""
