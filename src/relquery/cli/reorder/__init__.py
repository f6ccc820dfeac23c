"""`relquery reorder`."""
