"""Plans one SELECT: its filters and calls in order, and the query that reads their answers."""
