"""/v1/sql: statements that read the registered tables."""
