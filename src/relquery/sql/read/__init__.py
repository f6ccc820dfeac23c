"""Reads a query: its text, its calls, its scopes, and what its names mean."""
