"""The pages on `relquery serve` name all routes and figures, and only options that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from relquery.cli.app import app

pytest.importorskip("fastapi", reason="needs relquery[serve]")

from relquery.serve.app import make_app
from relquery.serve.operation.measures import PREFIX, Measures

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("serve", "routes", "operate")]
_ROUTE = re.compile(r"(/[\w{}./]*)`")
_OPTION = re.compile(r"`(--[a-z][a-z-]+)")


def without_names(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def test_the_table_of_routes_has_all_of_them_and_no_others() -> None:
    text = (DOCS / "routes.md").read_text(encoding="utf-8")
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    shown = {without_names(path) for path in _ROUTE.findall(table)}
    known = {without_names(path) for path in make_app().openapi()["paths"]}
    assert shown == known | {"/", "/openapi.json"}


def test_the_table_of_figures_has_all_of_them_and_no_others() -> None:
    text = (DOCS / "operate.md").read_text(encoding="utf-8").partition("## Figures")[2]
    cells = [line.split("|")[1] for line in text.partition("## ")[0].splitlines() if "| `" in line]
    shown = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    page = Measures("shortest").page(0, 0, None, 1).decode()
    exposed = set(re.findall(rf"^# TYPE {PREFIX}(\w+) \w+$", page, re.MULTILINE))
    assert shown == {name for name in exposed if not name.endswith("_created")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_that_a_page_names_exist(page: Path) -> None:
    command: Any = typer.main.get_command(app)
    groups = [command.commands[name] for name in ("serve", "reorder")]
    groups += command.commands["keys"].commands.values()
    known = {option for group in groups for one in group.params for option in one.opts}
    known |= {"--target"}  # Docker's
    assert set(_OPTION.findall(page.read_text(encoding="utf-8"))) <= known | {"--help"}
