"""A result as a notebook and a page show it, and which of its cells lack a value and why."""
