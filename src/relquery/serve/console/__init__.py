"""The page at /: SQL, plans, what is reused, and the queue."""
