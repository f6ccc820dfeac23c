"""Schemas and prompts from text, as trees that are checked against each other (paper 001, §3.2)."""
