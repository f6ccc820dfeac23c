"""The database that runs all SQL: DuckDB, its values and its errors."""
