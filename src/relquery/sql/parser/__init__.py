"""DuckDB's own tree of a statement, and the parts of statements that DuckDB gives no tree for."""
