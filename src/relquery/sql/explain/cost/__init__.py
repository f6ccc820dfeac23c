"""EXPLAIN (COST): what the calls of a statement cost, at least, as expected, and at most."""
