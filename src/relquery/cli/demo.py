"""`relquery demo`: one query over a bundled table, asked in three ways by the same engine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from relquery.cli.terminal import progress, result_table, say
from relquery.config import Order
from relquery.connection import connect
from relquery.demo.files import table_path
from relquery.sql.result import Result

QUERY = """\
SELECT movietitle, critic, kids,
       LLM('Is the movie suitable for kids? Answer Yes or No.',
           films.* EXCLUDE (kids), labels := ['Yes', 'No']) AS answer
FROM films
"""
"""The filter of paper 000 on Movies. `kids` is what the table says; no prompt has it."""


@dataclass(frozen=True, slots=True)
class DemoSide:
    """A way to ask the same questions. caches: whether prompts share what they begin with."""

    name: str
    order: Order
    caches: bool = True


SIDES = (
    DemoSide("relquery", "tree"),
    DemoSide("the table's order", "original"),
    DemoSide("no reuse", "original", caches=False),
)


def demo(
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Rows to ask about.")] = 1000,
    model: Annotated[str, typer.Option("--model", "-m", help="As in `relquery sql`.")] = "demo",
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Where the page of what was reused goes [default: a new file]"),
    ] = None,
) -> None:
    """Ask one question about 1,000 rows in three ways, and compare times, tokens and answers.

    In relquery's order, in the table's order, and without reuse; the same engine answers.

    [bold]Example[/bold]

    relquery demo --html reused.html
    """
    console = Console()
    say(f"{rows:,} film reviews joined with their films, eight columns. The query:")
    console.print(Syntax(QUERY, "sql", background_color="default"))
    results = [_run(side, model, rows) for side in SIDES]
    ours, *others = results
    console.print(result_table(ours, 5))
    console.print()
    console.print(_compared(dict(zip(SIDES, results, strict=True))))
    faster = (
        f"{other.report.seconds / ours.report.seconds:.1f} times as fast as {side.name}"
        for side, other in zip(SIDES[1:], others, strict=True)
    )
    console.print(f"relquery was {' and '.join(faster)}.", highlight=False)
    page = html or Path(tempfile.mkdtemp(prefix="relquery-")) / "demo.html"
    ours.write_html(page)
    console.print(f"What was reused, prompt by prompt: {page}", highlight=False, soft_wrap=True)


def _run(side: DemoSide, model: str, rows: int) -> Result:
    """Run the query on an engine of its own, whose cache is empty and whose code is warm."""
    with connect(model, order=side.order, ledger=None, prefix_caching=side.caches) as connection:
        connection.register("bundled", table_path("films"))
        connection.sql(f"CREATE TABLE films AS FROM bundled LIMIT {rows}")
        connection.sql(f"{QUERY} LIMIT 4", progress=False)
        is_ours = side is SIDES[0]
        with progress(f"{side.name}, ") as advance:
            result = connection.sql(QUERY, progress=advance, record=is_ours)
    say(f"{side.name}: {result.report.calls:,} answers in {result.report.seconds:.1f} s")
    return result


def _compared(results: dict[DemoSide, Result]) -> Table:
    """What each side took, read and got right."""
    view = Table(show_edge=False, pad_edge=False)
    for heading in ("", "seconds", "tokens read", "of all", "right answers"):
        view.add_column(heading, justify="right" if heading else "left")
    for side, result in results.items():
        report = result.report
        read = report.prompt_tokens - report.cached_tokens
        right = sum(row[2] == row[3] for row in result.fetchall()) / max(1, len(result))
        share = read / max(1, report.prompt_tokens)
        view.add_row(
            side.name, f"{report.seconds:.1f}", f"{read:,}", f"{share:.0%}", f"{right:.1%}"
        )
    return view
