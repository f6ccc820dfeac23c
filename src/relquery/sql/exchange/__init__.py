"""Conversion of values that leave the database: to Arrow, Python, pandas and polars."""
