"""Values that leave the database: as Arrow columns, in Python, in pandas and polars."""
