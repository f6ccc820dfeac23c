"""README and pages claim what the benchmarks' documents show; those on `relquery serve` name all
routes and figures, and only options that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from relquery.cli.app import command
from relquery.serve.app import make_app
from relquery.serve.metrics import PREFIX, Metrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BENCHMARKS = DOCS / "benchmarks"
CLAIMING = [*sorted((DOCS / "how-it-works").glob("*.md")), BENCHMARKS / "index.md"]
SHOWN = set(BENCHMARKS.glob("*.md"))
SERVED = [DOCS / f"{name}.md" for name in ("serve", "routes", "operate")]
_SHOWN = re.compile(r"^\| `([^`]+)` \| ([\d.]+) \|", re.MULTILINE)
_CLAIM = re.compile(r"([\d.]+)(%?)[^|`\d]*\(`([^`]+)`\)")
_ROUTE = re.compile(r"(/[\w{}./]*)`")
_OPTION = re.compile(r"`(--[a-z][a-z-]+)")
_PATH = re.compile(r"`([\w/]+(?:\.py|\.[ch]pp|/))`")
_CLASS = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)(?:\.\w+)?[`(]")


def figures(document: str) -> dict[str, float]:
    """Of all its parts, by name."""
    text = (BENCHMARKS / f"{document}.md").read_text(encoding="utf-8")
    return {name: float(value) for name, value in _SHOWN.findall(text)}


ALL = {
    name: value for path in BENCHMARKS.glob("*.md") for name, value in figures(path.stem).items()
}


def is_rounded(said: str, shown: float) -> bool:
    return float(said) == pytest.approx(shown, abs=0.51 * 10 ** -len(said.partition(".")[2]))


def rows_of(page: Path) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| ")
    ]


def test_the_readme_shows_what_the_documents_show() -> None:
    readme = ROOT / "README.md"
    bills = {
        row[1]: row
        for row in rows_of(BENCHMARKS / "providers.md")
        if row[0].startswith("movies, f")
    }
    shown = [row for row in rows_of(readme) if row[0] in bills]
    assert shown
    for model, automatic, ours in shown:
        assert is_rounded(ours, float(bills[model][4]))
        assert is_rounded(automatic, float(bills[model][5]))
    said = re.search(
        r"relquery ([\d.]+), OpenVINO ([\d.]+), llama.cpp ([\d.]+)", readme.read_text()
    )
    assert said
    rows = rows_of(BENCHMARKS / "cpu_peers.md")
    _, _, *measured = next(row for row in rows if row[0] == "filter table order")  # F16's
    for seconds, cell in zip(said.groups(), measured, strict=True):
        assert is_rounded(seconds, float(cell.removesuffix(" s")))


@pytest.mark.parametrize("page", CLAIMING, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_a_page_claims_what_the_documents_show(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    claims = _CLAIM.findall(text)
    assert claims or page.parent.name == "how-it-works"
    for said, percent, figure in claims:
        assert is_rounded(said, ALL[figure] * (100 if percent else 1)), figure


def test_files_and_folders_that_pages_name_exist() -> None:
    folders = ("src", "tests", "benchmarks", "training", "deploy", "docs")
    parts = [path.relative_to(ROOT).parts for at in folders for path in (ROOT / at).rglob("*")]
    there = {"/".join(path[start:]) for path in parts for start in range(len(path))} | {*folders}
    pages = [*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if page not in SHOWN)]
    missing = {
        f"{page.name}: {path}"
        for page in pages
        if page.name != "CHANGELOG.md"
        for path in _PATH.findall(page.read_text(encoding="utf-8"))
        if path.rstrip("/") not in there
    }
    assert not missing


def test_classes_that_the_pages_on_the_code_name_exist() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "relquery").rglob("*.py"))
    defined = set(re.findall(r"^(?:class )?([A-Z]\w+)\b(?=[:(\[]| =)", code, re.MULTILINE))
    for page in (DOCS / "architecture.md", *(DOCS / "how-it-works").glob("*.md")):
        assert set(_CLASS.findall(page.read_text(encoding="utf-8"))) <= defined, page.stem


def without_names(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def test_the_table_of_routes_has_all_of_them_and_no_others() -> None:
    text = (DOCS / "routes.md").read_text(encoding="utf-8")
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    shown = {without_names(path) for path in _ROUTE.findall(table)}
    known = {without_names(path) for path in make_app().openapi()["paths"]}
    assert shown == known | {"/", "/openapi.json", "/mcp"}


def test_the_table_of_figures_has_all_of_them_and_no_others() -> None:
    text = (DOCS / "operate.md").read_text(encoding="utf-8").partition("## Figures")[2]
    cells = [line.split("|")[1] for line in text.partition("## ")[0].splitlines() if "| `" in line]
    shown = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    page = Metrics("shortest").page(0, 0, None, 1).decode()
    exposed = set(re.findall(rf"^# TYPE {PREFIX}(\w+) \w+$", page, re.MULTILINE))
    assert shown == {name for name in exposed if not name.endswith("_created")}


@pytest.mark.parametrize("page", SERVED, ids=lambda page: page.stem)
def test_options_that_a_page_names_exist(page: Path) -> None:
    groups: list[Any] = [command("serve"), command("reorder"), *command("keys").commands.values()]
    known = {option for group in groups for one in group.params for option in one.opts}
    known |= {"--target"}  # Docker's
    assert set(_OPTION.findall(page.read_text(encoding="utf-8"))) <= known | {"--help"}
