"""`relquery demo`: a filter and a projection over a bundled table with the bundled model."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

from relquery.cli.terminal.show import comparison, errors_console, progress, result_table
from relquery.config import Order
from relquery.connection import Connection, connect
from relquery.demo.files import table_path
from relquery.errors import PartialResultWarning
from relquery.sql.result import Result
from relquery.table.reorder import reorder

QUERY = """\
SELECT movietitle, critic, year,
       LLM('Summarize the review in one sentence.', movies.*) AS summary
FROM movies
WHERE year >= 2000
  AND LLM('Is the review positive? Answer Yes or No.', movies.*) = 'Yes'
"""


def demo(
    rows: Annotated[int, typer.Option(help="Result rows to show.")] = 10,
    model: Annotated[str, typer.Option("--model", "-m", help="As in `relquery sql`.")] = "demo",
) -> None:
    """Run one query in relquery's order and in the original order, and compare the costs."""
    console = Console()
    console.print(Syntax(QUERY, "sql", background_color="default"))
    reordered = _run("tree", model)
    console.print(result_table(reordered, rows))
    original = _run("original", model)
    console.print()
    console.print(comparison({"tree (relquery)": reordered.report, "original": original.report}))
    same = sorted(reordered.fetchall(), key=str) == sorted(original.fetchall(), key=str)
    ratio = original.report.seconds / reordered.report.seconds
    compared = f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times slower"
    console.print(
        f"{compared} than in original order; "
        f"{'same rows' if same else 'rows differ because the field order affects the model'}.",
        highlight=False,
    )


def _warm_up(connection: Connection) -> None:
    """Compile the solver and use the model once, so that neither counts. Answers may be cut off."""
    reorder({"a": ["x", "x", "y"] * 20, "b": ["1", "2", "2"] * 20}, weight="tokens")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialResultWarning)
        connection.sql("SELECT LLM('Is it new?', year) FROM movies LIMIT 2", max_tokens=1)


def _run(order: Order, model: str) -> Result:
    """Run the query on its own engine, whose cache is empty.

    The model is loaded first, so that a missing extra is reported before the query runs.
    """
    with errors_console().status(f"loading {model}"):
        connection = connect(model, order=order, ledger=None)
    with connection:
        connection.register("movies", table_path("movies"))
        with errors_console().status("warming up"):
            _warm_up(connection)
        with progress(f"{order} order, ") as advance:
            return connection.sql(QUERY, progress=advance, max_tokens=64)
