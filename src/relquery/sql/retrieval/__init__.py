"""SQL functions that find texts: passages of a table, near texts, near-duplicates.

They make no LLM call, so the planner treats them like any function of DuckDB.
"""
