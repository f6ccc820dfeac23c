"""LLM queries over relational data."""
