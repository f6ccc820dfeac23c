"""Paths of the bundled model and tables. Imports nothing heavy."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from relquery.errors import TableError, unknown

TABLES = ("movies", "tickets", "products", "films")


def model_path() -> Path:
    """The folder of the bundled model, for `AutoModelForCausalLM.from_pretrained`."""
    return _root() / "model"


def table_path(name: str) -> Path:
    """The Parquet file of a bundled table. Raises TableError for a name not in `TABLES`."""
    if name not in TABLES:
        raise TableError(unknown("demo table", name, TABLES))
    return _root() / "tables" / f"{name}.parquet"


def _root() -> Path:
    return Path(str(files("relquery.demo")))
