"""What README and pages say of figures is what the benchmarks' documents say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
HOW_IT_WORKS = sorted((ROOT / "docs" / "how-it-works").glob("*.md"))
README = {
    r"a filter runs ([\d.]+) times faster": ("sql", "filter_ggr_over_original"),
    r"and ([\d.]+) times faster than without reuse": ("sql", "filter_ggr_over_no_cache"),
}
_SHOWN = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.MULTILINE)
_CLAIM = re.compile(r"([\d.]+)(%?)[^|`\d]*\(`(\w+)`\)")
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
