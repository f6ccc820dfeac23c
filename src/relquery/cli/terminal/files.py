"""How commands name tables in files. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relquery.demo.files import table_path
from relquery.errors import TableError

_DEMO = "demo:"


def find_file(name: str) -> Path:
    """The path that a person gave; demo:NAME is a bundled table. Raises TableError."""
    return table_path(name.removeprefix(_DEMO)) if name.startswith(_DEMO) else Path(name)


def find_table(given: str) -> tuple[str, Path]:
    """NAME=FILE, or FILE alone, as a name and a path."""
    name, separator, file = given.partition("=")
    if not separator:
        file, name = given, Path(given.removeprefix(_DEMO)).name.partition(".")[0]
    return name, find_file(file)


def find_tables(given: Sequence[str]) -> dict[str, Path]:
    """Paths of several tables by name. Raises TableError for two of one name."""
    found: dict[str, Path] = {}
    for name, path in map(find_table, given):
        if name in found:
            raise TableError(
                f"Two tables are named '{name}': {found[name]} and {path}. Rename one of them: "
                f"--table other={path}."
            )
        found[name] = path
    return found
