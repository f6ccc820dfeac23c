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
HOW_IT_WORKS = sorted((DOCS / "how-it-works").glob("*.md"))
README = {
    r"a filter runs ([\d.]+) times faster": ("sql", "filter_ggr_over_original"),
    r"and ([\d.]+) times faster than without reuse": ("sql", "filter_ggr_over_no_cache"),
}
SERVED = [DOCS / f"{name}.md" for name in ("serve", "routes", "operate")]
_SHOWN = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.MULTILINE)
_CLAIM = re.compile(r"([\d.]+)(%?)[^|`\d]*\(`(\w+)`\)")
_ROUTE = re.compile(r"(/[\w{}./]*)`")
_OPTION = re.compile(r"`(--[a-z][a-z-]+)")
_PATH = re.compile(r"`((?:tests|[a-z]+)/[\w/]+(?:\.py|/)?)`")


def figures(document: str) -> dict[str, float]:
    """Of all its parts, by name."""
    text = (BENCHMARKS / f"{document}.md").read_text(encoding="utf-8")
    return {name: float(value) for name, value in _SHOWN.findall(text)}


ALL = {
    name: value for path in BENCHMARKS.glob("*.md") for name, value in figures(path.stem).items()
}


def is_rounded(said: str, shown: float) -> bool:
    return float(said) == pytest.approx(shown, abs=0.51 * 10 ** -len(said.partition(".")[2]))


@pytest.mark.parametrize("claim", README)
def test_the_readme_claims_what_the_documents_show(claim: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
    said = re.search(claim, text)
    assert said, "the README says it in other words: change them here, too"
    document, figure = README[claim]
    assert is_rounded(said[1], figures(document)[figure])


@pytest.mark.parametrize("page", HOW_IT_WORKS, ids=lambda page: page.stem)
def test_a_page_claims_what_the_documents_show_and_names_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    claims = _CLAIM.findall(text)
    assert claims or page.stem in ("index", "prompt-cache")
    for said, percent, figure in claims:
        assert is_rounded(said, ALL[figure] * (100 if percent else 1)), figure
    for path in _PATH.findall(text):
        root = ROOT if path.startswith("tests/") else ROOT / "src" / "relquery"
        assert (root / path).exists(), path


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
