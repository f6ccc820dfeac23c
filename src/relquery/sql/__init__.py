"""The way of a query with LLM calls from its text to its result."""
