"""Runs a query on some of its rows, and estimates from them what all rows will cost."""
