"""Knowledge about a query before its first call: what it asks, and whether it must fail."""
