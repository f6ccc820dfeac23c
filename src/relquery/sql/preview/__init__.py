"""Runs a query on some of its rows, and foretells from them what all rows will cost."""
