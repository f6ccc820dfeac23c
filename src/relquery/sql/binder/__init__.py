"""What the names and calls of a statement mean."""
