"""What can be said about a cell: predicates of its destination, of its source and of how the two relate."""
