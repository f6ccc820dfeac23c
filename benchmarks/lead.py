"""What a page of docs/benchmarks leads with: a table and a picture, from the page's own figures.

leads.toml says which figures, and in which words. `python -m benchmarks.lead` writes the leads of
all pages and the table of their index; a benchmark that writes its page writes its lead.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Say
from benchmarks.markdown import draw, table

_BEGIN, _END = "<!-- lead -->\n", "<!-- end of lead -->\n"
_FIGURE = re.compile(r"^\| `([^`]+)` \| (-?[\d.e+]+) \|", re.MULTILINE)
_LEADS = Path(__file__).with_name("leads.toml")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a lead."""

    what: str
    beside: str
    result: str
    """Words around the value, as `str.format` takes them."""
    figure: str
    value: str
    """As the page has it."""

    @property
    def said(self) -> str:
        """The result in words."""
        number = self.value if "{}" in self.result else float(self.value)
        return self.result.format(number)

    @property
    def share(self) -> float | None:
        """Percent, for a figure that is said in percent."""
        return 100 * float(self.value) if "%" in self.result else None

    @property
    def times(self) -> float | None:
        """How many times better than what it is beside; None for a figure that is no ratio."""
        value = float(self.value)
        if " times " in self.result:
            return value
        return 1 / value if " of " in self.result and value else None


def rows(name: str, page: str, *, of_index: bool = False) -> list[Row]:
    """The lead of a page, by its name and text; of_index: only what the index has."""
    values = dict(_FIGURE.findall(page))
    given = _read().get(name, {}).get("rows", [])
    return [
        Row(what, beside, result, figure, values[figure])
        for what, beside, result, figure, is_of_index in given
        if figure in values and (is_of_index or not of_index)
    ]


def write(path: Path, say: Say) -> None:
    """Put the lead of a page below its title, in place of the one that it has."""
    page, name = path.read_text(encoding="utf-8"), path.stem
    found = rows(name, page)
    if not found:
        return
    picture = _read()[name].get("picture", f"{name}_lead.png")
    shown = [row for row in found if row.times is not None]
    if len(shown) < 2:
        shown = [row for row in found if row.share is not None]
    if picture == f"{name}_lead.png":
        has_picture = len(shown) > 1 and draw(partial(_plot, shown), path.with_name(picture), say)
    else:
        has_picture = path.with_name(picture).exists()
    lines = [*table(("what", "beside", "result"), [(r.what, r.beside, r.said) for r in found])]
    if has_picture:
        lines += [f"![{shown[0].what if shown else found[0].what}]({picture})", ""]
    title, rest = page.split("\n\n", 1)
    rest = re.sub(f"{_BEGIN}.*?{_END}\n?", "", rest, flags=re.DOTALL)
    lead = _BEGIN + "\n".join(lines) + "\n" + _END
    path.write_text(f"{title}\n\n{lead}\n{rest}", encoding="utf-8")


def write_index(folder: Path) -> None:
    """Write the table of the index anew."""
    path = folder / "index.md"
    page = path.read_text(encoding="utf-8")
    lines = table(("what", "beside", "result", "page"), _indexed(folder))
    path.write_text(page[: page.index("| what |")] + "\n".join(lines), encoding="utf-8")


def _indexed(folder: Path) -> Iterator[Sequence[str]]:
    for name, lead in _read().items():
        page = (folder / f"{name}.md").read_text(encoding="utf-8")
        link = f"[{lead['title']}]({name}.md)"
        for row in rows(name, page, of_index=True):
            yield row.what, row.beside, f"{row.said} (`{row.figure}`)", link


def _plot(shown: Sequence[Row], path: Path) -> None:
    """Bars: how many times better, and the other side is the line at 1; or percent."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = 0.45 * len(shown) + 0.9
    drawing, axes = plt.subplots(figsize=(8, size), layout="constrained")
    ratios = [row.times for row in shown if row.times is not None]
    values = ratios or [row.share or 0.0 for row in shown]
    bars = axes.barh(range(len(shown)), values, color="#2a6f97")
    unit = " x" if ratios else "%"
    axes.bar_label(bars, [f"{value:.3g}{unit}" for value in values], padding=3)
    names = [row.what + (f"\nbeside {row.beside}" if row.beside else "") for row in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.invert_yaxis()
    is_wide = bool(ratios) and max(values) > 12
    axes.set_xscale("log" if is_wide else "linear")
    axes.set_xlim(left=0.5 if is_wide else 0, right=max(values) * 1.25)
    if ratios:
        axes.axvline(1, color="#888888", linewidth=1)
        axes.set_xlabel("times better than the other side, which is the line at 1")
    axes.spines[["top", "right"]].set_visible(False)
    drawing.savefig(path, dpi=90)
    plt.close(drawing)


def _read() -> dict[str, Any]:
    return tomllib.loads(_LEADS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    docs = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/benchmarks")
    for each in sorted(docs.glob("*.md")):
        write(each, print)
    write_index(docs)
