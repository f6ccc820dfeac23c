"""Orders of rows and fields: simple, greedy, searched for, and exact."""
