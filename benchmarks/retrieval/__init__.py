"""`scripts/bench retrieval`: passages for questions, indexes, and joins by blocking."""
