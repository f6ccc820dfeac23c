"""Functional dependencies: their definition and discovery."""
