"""Tables as HTML. They inherit colours, so they can be read on light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_CUT = 120  # characters of a cell that are shown
WHOLE = 2_000
"""Characters of a cell that are shown on hover."""

_LINE = "1px solid rgba(128,128,128,.4)"
STYLE = f"""
.relquery{{color:inherit;font-size:13px;line-height:1.45;overflow-x:auto;max-width:100%}}
.relquery table{{border-collapse:collapse;border:none;margin:0 0 .4em;color:inherit;
table-layout:auto;font-size:inherit}}
.relquery table tr{{background:none;border:none}}
.relquery table th,.relquery table td{{padding:.25em .8em .25em 0;text-align:left;
vertical-align:top;max-width:44em;white-space:pre-line;overflow-wrap:break-word;
color:inherit;background:none;border:none;border-bottom:{_LINE}}}
.relquery thead th{{font-weight:600}}
.relquery table th.n,.relquery table td.n{{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}}
.relquery .null{{opacity:.6;font-style:italic}}
.relquery .bad{{background:rgba(224,64,48,.2);padding:0 .35em;border-radius:3px;
font-style:italic;cursor:help}}
.relquery p{{margin:.2em 0;opacity:.8}}
.relquery summary{{cursor:pointer;opacity:.8}}
.relquery ul{{margin:.2em 0 .4em;padding-left:1.4em}}
""".replace("\n", "")
"""For everything inside `boxed`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    text: shown; cut if it is long. hover: shown on hover; by default the whole of a long text.
    kind: "null" for NULL, "bad" for a value that is missing because of an error.
    """

    text: str
    hover: str | None = None
    kind: str = ""

    @property
    def html(self) -> str:
        """The cell's content."""
        shown = cut(self.text, _CUT)
        hover = self.hover
        if hover is None and shown != self.text:
            hover = cut(self.text, WHOLE)
        title = "" if hover is None else f' title="{escape(hover)}"'
        name = f' class="{self.kind}"' if self.kind else ""
        return f"<span{name}{title}>{escape(shown)}</span>" if title or name else escape(shown)


def cut(text: str, most: int) -> str:
    """The text, or its beginning if it has more characters than `most`."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Cell | str]], numbers: Sequence[bool]
) -> str:
    """A table. numbers: for each column, whether it is aligned right."""
    marks = [' class="n"' if number else "" for number in numbers]
    head = "".join(
        f"<th{mark}>{Cell(heading).html}</th>"
        for mark, heading in zip(marks, headings, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_data, marks, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _data(mark: str, cell: Cell | str) -> str:
    return f"<td{mark}>{cell.html if isinstance(cell, Cell) else Cell(cell).html}</td>"


def of_columns(columns: dict[str, list[str]], texts: Iterable[str]) -> str:
    """A table of texts by column. texts: the titles of columns that are not numbers."""
    words = set(texts)
    rows = zip(*columns.values(), strict=True)
    return table(list(columns), rows, [title not in words for title in columns])


def lines(texts: Iterable[str]) -> str:
    """A paragraph for each text."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def preformatted(text: str) -> str:
    """Text whose spaces and line breaks stay."""
    return f"<pre>{escape(text)}</pre>"


def details(summary: str, items: Iterable[str]) -> str:
    """A list that opens on a click."""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<details><summary>{escape(summary)}</summary><ul>{listed}</ul></details>"


def boxed(*parts: str) -> str:
    """The parts with their style, for a notebook."""
    return f'<div class="relquery"><style>{STYLE}</style>{"".join(parts)}</div>'
