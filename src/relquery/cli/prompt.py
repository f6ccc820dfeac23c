"""`relquery prompt`: schemas of prompt modules, and prompts over them, checked, drawn, answered."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from relquery.backends.base import LazyBackend
from relquery.backends.load import load
from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.interrupt import exits_when_interrupted, interruptible
from relquery.cli.terminal.options import CacheTokens, Json
from relquery.cli.terminal.show import to_json
from relquery.markup.imports import MarkupPrompt
from relquery.markup.layout import Layout
from relquery.markup.reader import read_text
from relquery.markup.schema import Schema
from relquery.markup.schemas import PromptResult, Schemas
from relquery.markup.schemas import draw as drawn
from relquery.prompt import Sampling

prompt = typer.Typer(
    help="""Prompt markup: schemas of modules, and prompts that import them.

    [bold]Example[/bold]

    relquery prompt draw travel.xml
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_Schema = Annotated[Path, typer.Argument(metavar="SCHEMA", help="A file with <schema>.")]
_Model = Annotated[
    str, typer.Option("--model", "-m", help="A model of the local engine, as in `relquery sql`.")
]


@prompt.command()
def draw(
    schema: _Schema,
    asked: Annotated[
        Path | None, typer.Argument(metavar="[PROMPT]", help="A file with <prompt>.")
    ] = None,
) -> None:
    """Check a schema, or a prompt over it, and draw it as a tree.

    [bold]Examples[/bold]

    relquery prompt draw travel.xml

    relquery prompt draw travel.xml tokyo.xml
    """
    read = Schema.load(schema)
    shown = read if asked is None else MarkupPrompt.parse(read_text(asked), read)
    typer.echo(drawn(shown))


@prompt.command()
def check(schema: _Schema, model: _Model = "demo", as_json: Json = False) -> None:
    """Show the layout of a schema: every module with its positions, tokens and bytes.

    [bold]Example[/bold]

    relquery prompt check travel.xml --model demo
    """
    read = Schema.load(schema)
    with interruptible():
        backend = load(model)
        schemas = Schemas(backend)
        schemas.add(read)
        layout = schemas.layout(read.name)
    rows = _rows(layout)
    size = backend.insight.token_bytes() or 0
    if as_json:
        modules = [
            {"module": name, "start": start, "stop": stop, "tokens": own, "bytes": own * size}
            for name, start, stop, own in rows
        ]
        typer.echo(to_json({"schema": read.name, "positions": layout.stop, "modules": modules}))
        return
    view = Table(show_edge=False, pad_edge=False)
    view.add_column("module", overflow="fold")
    for heading in ("positions", "own tokens", "bytes"):
        view.add_column(heading, justify="right")
    for name, start, stop, own in rows:
        view.add_row(name, f"{start:,}-{stop:,}", f"{own:,}", f"{own * size:,}")
    errors_console().print(
        f"Schema {read.name}: {layout.stop:,} positions, {size:,} bytes per token.",
        highlight=False,
    )
    Console().print(view)


@prompt.command("run")
def run_prompt(
    schema: _Schema,
    asked: Annotated[Path, typer.Argument(metavar="PROMPT", help="A file with <prompt>.")],
    model: _Model = "demo",
    max_tokens: Annotated[int, typer.Option(help="Tokens that the answer may have.")] = 256,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Compute the states of all modules first.")
    ] = False,
    cache_tokens: CacheTokens = None,
    store: Annotated[
        Path | None, typer.Option(help="A folder that keeps the states of modules.")
    ] = None,
    independent: Annotated[
        bool, typer.Option(help="Use modules; --no-independent sends the same text without them.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Answer a prompt; show the time to its first token, and what came from the cache.

    [bold]Examples[/bold]

    relquery prompt run travel.xml tokyo.xml --model demo

    relquery prompt run travel.xml tokyo.xml --prepare --store states --max-tokens 50

    relquery prompt run travel.xml tokyo.xml --no-independent --json
    """
    read = Schema.load(schema)
    text = read_text(asked)
    MarkupPrompt.parse(text, read)  # before a model is loaded
    given = {"cache_tokens": cache_tokens, "store": store}
    options = {name: value for name, value in given.items() if value is not None}
    backend = LazyBackend(lambda: load(model, **options))
    with exits_when_interrupted():
        schemas = Schemas(backend)
        schemas.add(read, prepare=prepare)
        sampling = Sampling(max_tokens=max_tokens)
        result = schemas.ask(text, sampling, independent=independent)
    if as_json:
        typer.echo(to_json(_document(result)))
    else:
        typer.echo(result.text)
        _show_use(result)


def _rows(layout: Layout) -> list[tuple[str, int, int, int]]:
    """Of the schema's own text and each module: path, positions, and tokens that are kept."""
    own = sum(each.tokens for each in layout.own)
    rows = [("(schema)", 0, layout.stop, own)]
    for laid in layout.all():
        rows.append(("/".join(laid.path), laid.range.start, laid.range.stop, laid.tokens))
    return rows


def _show_use(result: PromptResult) -> None:
    console, answer = errors_console(), result.answer
    if answer.error is not None:
        console.print(f"Note: {answer.error}", markup=False, highlight=False)
    for used in result.used:
        console.print(
            f"{used.name}: {used.tokens:,} tokens, {used.cached:,} from "
            f"{' and '.join(used.sources) or 'the cache'}",
            markup=False,
            highlight=False,
        )
    first = "" if answer.first_token is None else f", first token after {answer.first_token:.3f} s"
    console.print(
        f"{answer.prompt_tokens:,} prompt tokens, {answer.cached_tokens:,} from the cache, "
        f"{answer.output_tokens:,} answer tokens{first}",
        highlight=False,
    )


def _document(result: PromptResult) -> dict[str, object]:
    answer = result.answer
    return {
        "text": result.text,
        "finish": answer.finish.value,
        "first_token_seconds": answer.first_token,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "output_tokens": answer.output_tokens,
        "used": [{**asdict(used), "sources": list(used.sources)} for used in result.used],
    }
