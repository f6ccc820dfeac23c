"""What `import relquery` costs and gives."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

import relquery
from relquery import errors

ROOT = Path(__file__).parents[1]
HEAVY = {
    "torch",
    "transformers",
    "duckdb",
    "pyarrow",
    "sqlglot",
    "numpy",
    "pandas",
    "httpx2",
}


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_importing_the_package_takes_under_three_tenths_of_a_second() -> None:
    code = (
        "import time; start = time.perf_counter(); import relquery;"
        "print(time.perf_counter() - start)"
    )
    assert min(float(run_python(code)) for _ in range(5)) < 0.3


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = run_python(
        "import relquery, sys; print(*{name.split('.')[0] for name in sys.modules})"
    )
    assert not HEAVY & set(loaded.split())


LOCAL_QUERY = """
import sys
import relquery as rq

con = rq.connect(model="demo", ledger=None)
con.sql("SELECT AI_FILTER('Is it good?', 'A good film.')")
print(*{name.split(".")[0] for name in sys.modules})
"""


def test_a_query_on_this_machine_imports_neither_torch_nor_a_client_of_anything() -> None:
    heavy = {"torch", "transformers", "huggingface_hub", "httpx2", "sqlglot"}
    assert not heavy & set(run_python(LOCAL_QUERY).split())


@pytest.mark.parametrize("name", getattr(relquery, "__all__", []))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(relquery, name) is not None
    assert name in dir(relquery)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert relquery.__version__ == project["version"]


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        relquery.no_such_name  # noqa: B018


def test_the_package_tells_type_checkers_that_it_is_typed() -> None:
    assert resources.files("relquery").joinpath("py.typed").is_file()


def drawn_tree() -> dict[str, str]:
    """Error class -> its parent, read from the drawing in the docstring of errors.py."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^([│ ]*(?:[├└]── )?)([A-Z]\w+Error)\b", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            if depth:
                parents[match[2]] = path[depth - 1]
    return parents


def test_the_drawing_of_the_exception_tree_is_true() -> None:
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RelqueryError)
    }
    real = {
        name: next(base.__name__ for base in value.__bases__ if base.__name__ in classes)
        for name, value in classes.items()
        if value is not errors.RelqueryError
    }
    assert drawn_tree() == real
