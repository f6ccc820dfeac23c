"""From the text of a query with LLM calls to its result."""
