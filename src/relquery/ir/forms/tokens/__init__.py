"""A query as one token sequence (paper 002, sections 5.2-5.3)."""
