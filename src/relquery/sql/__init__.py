"""LLM calls in SQL: found, planned as stages, run on DuckDB and a backend."""
