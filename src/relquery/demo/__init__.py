"""The demo model and the demo tables: the files and their paths."""

from relquery.demo.files import TABLES, model_path, table_path

__all__ = ["TABLES", "model_path", "table_path"]
