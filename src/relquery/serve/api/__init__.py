"""What no other server has: whole tables, span queries, prompt schemas and SQL."""
