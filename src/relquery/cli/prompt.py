"""`relquery prompt`: schemas of prompt modules, and prompts over them, checked, drawn, answered."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from relquery.backends.base import LazyBackend
from relquery.backends.load import load
from relquery.cli.command import argument, command_of, option
from relquery.cli.interrupt import exits_when_interrupted, interruptible
from relquery.cli.terminal import say, table, to_json
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
_SCHEMA = typer.Argument(metavar="SCHEMA", help="A file with <schema>.")


@prompt.command()
def draw(
    schema: Annotated[Path, _SCHEMA],
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
    typer.echo(drawn(read if asked is None else MarkupPrompt.parse(read_text(asked), read)))


@prompt.command()
def check(
    schema: Annotated[Path, _SCHEMA],
    model: Annotated[
        str, typer.Option("--model", "-m", help="A model of the local engine.")
    ] = "demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
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
    size = backend.insight.token_bytes() or 0
    rows = [
        {"module": name, "start": start, "stop": stop, "tokens": own, "bytes": own * size}
        for name, start, stop, own in _rows(layout)
    ]
    if as_json:
        typer.echo(to_json({"schema": read.name, "positions": layout.stop, "modules": rows}))
        return
    columns = {
        "module": [str(row["module"]) for row in rows],
        "positions": [f"{row['start']:,}-{row['stop']:,}" for row in rows],
        "own tokens": [f"{row['tokens']:,}" for row in rows],
        "bytes": [f"{row['bytes']:,}" for row in rows],
    }
    say(f"Schema {read.name}: {layout.stop:,} positions, {size:,} bytes per token.")
    Console().print(table(columns, words=("module",), lines=True))


def _rows(layout: Layout) -> list[tuple[str, int, int, int]]:
    """Of the schema's own text and each module: path, positions, and tokens that are kept."""
    own = sum(each.tokens for each in layout.own)
    modules = [
        ("/".join(laid.path), laid.range.start, laid.range.stop, laid.tokens)
        for laid in layout.all()
    ]
    return [("(schema)", 0, layout.stop, own), *modules]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Answer a prompt; show the time to its first token, and what came from the cache.

    [bold]Examples[/bold]

    relquery prompt run travel.xml tokyo.xml --model demo

    relquery prompt run travel.xml tokyo.xml --prepare --store states --max-tokens 50

    relquery prompt run travel.xml tokyo.xml --no-independent --json
    """

    schema: Path = argument("A file with <schema>.", metavar="SCHEMA")
    asked: Path = argument("A file with <prompt>.", metavar="PROMPT")
    model: str = option("A model of the local engine.", "--model", "-m", default="demo")
    max_tokens: int = option("Tokens that the answer may have.", default=256)
    prepare: bool = option("Compute the states of all modules first.", "--prepare", default=False)
    cache_tokens: int | None = option("Capacity of the KV cache in tokens.")
    store: Path | None = option("A folder that keeps the states of modules.")
    independent: bool = option(
        "Use modules; --no-independent sends the same text without them.", default=True
    )
    as_json: bool = option("Print the result as JSON.", "--json", default=False)

    def __call__(self) -> None:
        """Run it."""
        read, text = Schema.load(self.schema), read_text(self.asked)
        MarkupPrompt.parse(text, read)  # before a model is loaded
        given = {"cache_tokens": self.cache_tokens, "store": self.store}
        options = {name: value for name, value in given.items() if value is not None}
        backend = LazyBackend(lambda: load(self.model, **options))
        with exits_when_interrupted():
            schemas = Schemas(backend)
            schemas.add(read, prepare=self.prepare)
            sampling = Sampling(max_tokens=self.max_tokens)
            result = schemas.ask(text, sampling, independent=self.independent)
        if self.as_json:
            typer.echo(to_json(_document(result)))
        else:
            typer.echo(result.text)
            _say_use(result)


prompt.command("run")(command_of(Run))


def _say_use(result: PromptResult) -> None:
    answer = result.answer
    if answer.error is not None:
        say(f"Note: {answer.error}")
    for used in result.used:
        sources = " and ".join(used.sources) or "the cache"
        say(f"{used.name}: {used.tokens:,} tokens, {used.cached:,} from {sources}")
    first = "" if answer.first_token is None else f", first token after {answer.first_token:.3f} s"
    say(
        f"{answer.prompt_tokens:,} prompt tokens, {answer.cached_tokens:,} from the cache, "
        f"{answer.output_tokens:,} answer tokens{first}"
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
