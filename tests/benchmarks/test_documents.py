"""What the README says of a benchmark's figures is what its document says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
CLAIMS = {
    r"the filter runs ([\d.]+) times faster": ("sql", "filter_ggr_over_original", 1.0),
    r"the projection ([\d.]+) times": ("sql", "projection_ggr_over_original", 1.0),
    r"against no cache ([\d.]+) times": ("sql", "filter_ggr_over_no_cache", 1.0),
    r"(\d+)% of the filter's prompt tokens": ("sql", "filter_hit_rate", 100.0),
    r"first served takes ([\d.]+) times as long": ("relserve", "fcfs_over_ours", 1.0),
    r"first in, first out takes ([\d.]+) times": ("prefill_only", "wl1_fifo_over_srjf_mean", 1.0),
    r"may be (\d+) times as long as with plain": ("prefill_only", "max_input_over_plain", 1.0),
    r"and (\d+) times as with chunked": ("prefill_only", "max_input_over_chunked", 1.0),
}


def value(document: str, figure: str) -> float:
    """Of a figure, as the table of its document has it."""
    text = (ROOT / "docs" / "benchmarks" / f"{document}.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| `{figure}` \| ([\d.]+) \|", text, re.MULTILINE)
    assert found, f"{document}.md has no figure {figure}"
    return float(found[1])


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_readme_claims_what_the_documents_show(claim: str) -> None:
    said = re.search(claim, README)
    assert said, "the README says it in other words: change them here, too"
    decimals = len(said[1].partition(".")[2])
    document, figure, unit = CLAIMS[claim]
    shown = unit * value(document, figure)
    assert float(said[1]) == pytest.approx(shown, abs=0.51 * 10**-decimals)
