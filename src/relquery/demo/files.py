"""Where the bundled model and tables lie. Imports nothing heavy."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

TABLES = ("movies", "tickets", "products")


def model_path() -> Path:
    """The folder of the bundled model, for `AutoModelForCausalLM.from_pretrained`."""
    return _root() / "model"


def table_path(name: str) -> Path:
    """The Parquet file of a bundled table; raises KeyError for a name not in `TABLES`."""
    if name not in TABLES:
        raise KeyError(f"No demo table {name!r}. Demo tables: {', '.join(TABLES)}.")
    return _root() / "tables" / f"{name}.parquet"


def _root() -> Path:
    return Path(str(files("relquery.demo")))
