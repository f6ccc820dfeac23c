"""`relquery trace`, `replay` and `simulate`."""
