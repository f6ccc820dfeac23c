"""The meaning of the names and calls in a statement."""
