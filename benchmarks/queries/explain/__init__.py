"""What EXPLAIN says of a query, and what its run shows."""
