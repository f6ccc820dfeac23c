"""EXPLAIN ANALYZE: what EXPLAIN predicts of a statement's stages beside what its run shows."""
