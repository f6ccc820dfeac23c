"""The demo model and the demo tables: files, and where they lie."""

from relquery.demo.files import TABLES, model_path, table_path

__all__ = ["TABLES", "model_path", "table_path"]
