"""Solvers for the order of rows and fields: simple, greedy, search and exact."""
