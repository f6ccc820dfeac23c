"""`relquery span`: span queries in files, answered, explained or drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from relquery.backends.base import Backend
from relquery.backends.load import load
from relquery.cli.command import argument, command_of, option, pairs
from relquery.cli.interrupt import exits_when_interrupted
from relquery.cli.terminal import errors_console, progress, say, to_json
from relquery.errors import QueryError
from relquery.ir.nodes import Chat, Generate, Node
from relquery.ir.optimize import rewrite
from relquery.ir.text import parse_tree
from relquery.ir.wire import WireQuery, from_wire
from relquery.spans.corpus import passages
from relquery.spans.explain import explain
from relquery.spans.run import run
from relquery.spans.work import SpanResult

_TEXT_FORMS = (".txt", ".span")
_JSON = ("{", "[", '"', "null", "true", "false")  # how JSON, and no tree as text, begins
_UNNAMED = "default"  # what a file says where it leaves the model open
_DEMO = "demo"
_SHOWN_NOTES = 3

span = typer.Typer(
    help="""Span queries: generations that read other generations and reuse their states.

    [bold]Example[/bold]

    relquery span run best.span --model demo
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


class For(Enum):
    """The goal that a query is optimised for."""

    CACHE = "cache"
    ATTENTION = "attention"


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """A file with a query."""

    file: str = argument(
        "JSON wire form, or the text form (.txt, .span); '-' for stdin.", metavar="FILE"
    )
    var: list[str] | None = option("Fills {NAME} in the JSON form.", metavar="NAME=VALUE")

    def read(self, model: str = _DEMO, max_tokens: int | None = None) -> WireQuery:
        """The query. model, max_tokens: fill the placeholders {model} and {max_tokens} unless a
        variable does; without a limit ours holds.

        Raises QueryError, and OSError for a file that cannot be read.
        """
        text = _standard_input() if self.file == "-" else _read(Path(self.file))
        given = pairs("--var", self.var, "n=4")
        is_tree = self.file == "-" and not text.lstrip().startswith(_JSON)
        if self.file.endswith(_TEXT_FORMS) or is_tree:
            if given:
                raise QueryError(
                    "--var only fills placeholders in the JSON form. This is the text form: "
                    "write the values into the text."
                )
            return WireQuery(parse_tree(text))
        for name, value in (("model", model), ("max_tokens", str(max_tokens or 0))):
            if f"{{{name}}}" in text:
                given.setdefault(name, value)
        try:
            return from_wire(text, given or None)
        except QueryError as error:
            hint = " Here: --var NAME=VALUE." if "placeholder" in str(error) else ""
            raise QueryError(f"{error}{hint}") from error


@dataclass(frozen=True, kw_only=True)
class QueryOptions(FileOptions):
    """A query, and who answers it."""

    model: str | None = option(
        "As in `relquery sql`. Default: the model named in the file, else demo.", "--model", "-m"
    )
    corpus: list[str] | None = option(
        "Text to retrieve from; blank lines end passages.", metavar="NAME=FILE"
    )
    for_: For = option(
        "cache: run the query exactly as written. attention: judge a few candidates at a time; "
        "answers differ, and it takes more calls.",
        "--for",
        default=For.CACHE,
    )
    arity: int = option("With --for attention: how many answers one judge reads.", min=2, default=2)
    max_tokens: int | None = option("Upper limit on the max_tokens of every generation.", min=1)
    cache_tokens: int | None = option("Capacity of the KV cache in tokens.")

    def query(self) -> WireQuery:
        """What the file has, with no longer answers than given. Notes of the file are said."""
        query = self.read(self.model or _DEMO, self.max_tokens)
        for message in query.messages:
            say(message)
        effects = tuple(capped(effect, self.max_tokens) for effect in query.effects)
        return replace(query, node=capped(query.node, self.max_tokens), effects=effects)

    def settings(self, query: WireQuery) -> dict[str, Any]:
        """How it is run, with what it retrieves from: documents that came with it, and files."""
        corpora = {name: passages(_decoded(name, text)) for name, text in query.documents.items()}
        for name, file in pairs("--corpus", self.corpus, "docs=notes.txt").items():
            corpora[name] = passages(_read(Path(file)))
        return {"for_": self.for_.value, "arity": self.arity, "corpora": corpora}

    def backend(self, query: WireQuery, cost: str | None = None) -> Backend:
        """Load the model."""
        model = self.model or (_DEMO if query.model in (None, _UNNAMED) else query.model)
        given = {"cache_tokens": self.cache_tokens, "cost": cost}
        options = {name: value for name, value in given.items() if value is not None}
        with errors_console().status(f"loading {model}"):
            return load(model, **options)


@dataclass(frozen=True, kw_only=True)
class RunQuery(QueryOptions):
    """Answer the query in a file.

    [bold]Examples[/bold]

    relquery span run email.json --var n=4 --model demo --max-tokens 32

    relquery span run ask.span --corpus docs=notes.txt --json
    """

    independent: bool = option(
        "Children of plus attend only to themselves. Use --no-independent for providers.",
        default=True,
    )
    as_json: bool = option("Print the result as JSON.", "--json", default=False)

    def __call__(self) -> None:
        """Run it."""
        query = self.query()
        settings = {**self.settings(query), "independent": self.independent}
        with exits_when_interrupted():
            backend = self.backend(query)
            with progress() as advance:
                for effect in query.effects:
                    run(effect, backend, **settings)
                result = run(query.node, backend, progress=advance, **settings)
        typer.echo(to_json(_document(result)) if self.as_json else result.text)
        notes = result.report.notes
        for note in notes[:_SHOWN_NOTES]:
            say(f"Note: {note}")
        if len(notes) > _SHOWN_NOTES:
            say(f"... and {len(notes) - _SHOWN_NOTES} more notes (--json shows all).")
        say(str(result.report))


@dataclass(frozen=True, kw_only=True)
class Explain(QueryOptions):
    """Show which rules apply, and how many tokens of each prompt and span are cached.

    [bold]Example[/bold]

    relquery span explain email.json --var n=4 --warm --max-tokens 32
    """

    warm: bool = option("Run the inner generations first.", "--warm", default=False)
    cost: str | None = option(
        "What steps cost (`relquery calibrate`), needed to estimate seconds.",
        metavar="NAME|FILE.json",
    )

    def __call__(self) -> None:
        """Run it."""
        query = self.query()
        settings = self.settings(query)
        with exits_when_interrupted():
            backend = self.backend(query, self.cost)
            with progress() as advance:
                told = explain(query.node, backend, warm=self.warm, progress=advance, **settings)
        typer.echo(str(told))


@dataclass(frozen=True, kw_only=True)
class DrawTree(FileOptions):
    """Draw the query's tree, in the text form that the other commands read.

    [bold]Example[/bold]

    relquery span draw email.json --var n=4 > email.span
    """

    def __call__(self) -> None:
        """Run it."""
        typer.echo(str(self.read().node))


for _name, _options in (("run", RunQuery), ("explain", Explain), ("draw", DrawTree)):
    span.command(_name)(command_of(_options))


def capped(node: Node, max_tokens: int | None) -> Node:
    """The query with no generation longer than `max_tokens`."""
    if max_tokens is None:
        return node

    def cap(node: Node) -> Node | None:
        if not isinstance(node, Generate | Chat) or node.sampling.max_tokens <= max_tokens:
            return None
        return replace(node, sampling=replace(node.sampling, max_tokens=max_tokens))

    return rewrite(node, [cap])


def _standard_input() -> str:
    # As bytes where there are any: what the terminal's encoding makes of them is not asked.
    return _decoded("standard input", getattr(sys.stdin, "buffer", sys.stdin).read())


def _read(path: Path) -> str:
    return _decoded(str(path), path.read_bytes())


def _decoded(name: str, content: str | bytes) -> str:
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise QueryError(f"Byte {error.start} of {name} is not UTF-8; save it as UTF-8.") from None


def _document(result: SpanResult) -> dict[str, object]:
    report = result.report
    counts = ("prompt_tokens", "cached_tokens", "output_tokens")
    generations: Sequence[dict[str, object]] = [
        {
            "where": generation.where,
            "text": generation.answer.text,
            "finish": generation.answer.finish.value,
            **{name: getattr(generation.answer, name) for name in counts},
        }
        for generation in report.generations
    ]
    return {
        "text": result.text,
        "texts": result.texts,
        "finish": None if result.answer is None else result.answer.finish.value,
        "notes": report.notes,
        "seconds": report.seconds,
        **{name: getattr(report, name) for name in counts},
        "generations": generations,
    }
