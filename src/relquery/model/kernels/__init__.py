"""Loops in machine code that torch has no operation for, on torch's own threads."""
