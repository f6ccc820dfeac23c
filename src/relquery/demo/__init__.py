"""The demo model and the demo tables, and the generator that both are made from."""

from relquery.demo.files import TABLES, model_path, table_path

__all__ = ["TABLES", "model_path", "table_path"]
