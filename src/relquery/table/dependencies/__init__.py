"""Functional dependencies: what one is, and finding them."""
