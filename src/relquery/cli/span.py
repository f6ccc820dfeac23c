"""`relquery span`: span queries in files, answered, explained or drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from relquery.backends.base import Backend
from relquery.backends.load import load
from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.interrupt import exits_when_interrupted
from relquery.cli.terminal.options import CacheTokens, Cost, Json
from relquery.cli.terminal.show import progress, say, to_json
from relquery.errors import QueryError
from relquery.ir.nodes import Chat, Generate, Node
from relquery.ir.optimize import Goal, rewrite
from relquery.ir.spnl.wire import WireQuery, from_wire
from relquery.ir.text import parse_tree
from relquery.spans.corpus import passages
from relquery.spans.explain import explain
from relquery.spans.result import SpanResult
from relquery.spans.run import run

_TEXT_FORMS = (".txt", ".span")
_JSON = ("{", "[", '"', "null", "true", "false")  # how JSON, and no tree as text, begins


def read_query(
    file: str, variables: Sequence[str], model: str, max_tokens: int | None = None
) -> WireQuery:
    """A query from a file, or from standard input for "-".

    variables: "NAME=VALUE" each, for placeholders. model, max_tokens: fill the placeholders
        {model} and {max_tokens} unless a variable does; without a limit ours holds.
    Raises QueryError, and OSError for a file that cannot be read.
    """
    text = _standard_input() if file == "-" else _read(Path(file))
    given = dict(_named(item, "--var", "n=4") for item in variables)
    if file.endswith(_TEXT_FORMS) or (file == "-" and not text.lstrip().startswith(_JSON)):
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


def read_corpora(query: WireQuery, files: Sequence[str]) -> dict[str, list[str]]:
    """What the query retrieves from: documents that came with it, and "NAME=FILE" each."""
    corpora = {name: passages(_decoded(name, text)) for name, text in query.documents.items()}
    for item in files:
        name, file = _named(item, "--corpus", "docs=notes.txt")
        corpora[name] = passages(_read(Path(file)))
    return corpora


def capped(node: Node, max_tokens: int | None) -> Node:
    """The query with no generation longer than `max_tokens`."""
    if max_tokens is None:
        return node

    def cap(node: Node) -> Node | None:
        if not isinstance(node, Generate | Chat) or node.sampling.max_tokens <= max_tokens:
            return None
        sampling = replace(node.sampling, max_tokens=max_tokens)
        if isinstance(node, Chat):
            return Chat(node.children, sampling)
        return Generate(node.input, sampling)

    return rewrite(node, [cap])


def _named(item: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise QueryError(f"{option} is {item!r}; write it as NAME=..., e.g. {option} {example}.")
    return name, value


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


span = typer.Typer(
    help="""Span queries: generations that read other generations and reuse their states.

    [bold]Example[/bold]

    relquery span run best.span --model demo
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_UNNAMED = "default"  # what a file says where it leaves the model open
_DEMO = "demo"
_SHOWN_NOTES = 3


class For(Enum):
    """What a query is optimised for."""

    CACHE = "cache"
    ATTENTION = "attention"


_File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="JSON wire form, or the text form (.txt, .span); '-' for stdin."
    ),
]
_Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="As in `relquery sql`. Default: the model named in the file, else demo.",
    ),
]
_Var = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help="Fills {NAME} in the JSON form."),
]
_Corpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus", metavar="NAME=FILE", help="Text to retrieve from; blank lines end passages."
    ),
]
_For = Annotated[
    For,
    typer.Option(
        "--for",
        help="cache: run the query exactly as written. attention: judge a few candidates at a "
        "time; answers differ, and it takes more calls.",
    ),
]
_Arity = Annotated[
    int, typer.Option(min=2, help="With --for attention: how many answers one judge reads.")
]
_MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Upper limit on the max_tokens of every generation.")
]


@dataclass(frozen=True, slots=True)
class _Query:
    node: Node
    effects: tuple[Node, ...]
    model: str
    settings: dict[str, Any]


@span.command("run")
def run_file(
    file: _File,
    model: _Model = None,
    var: _Var = None,
    corpus: _Corpus = None,
    for_: _For = For.CACHE,
    arity: _Arity = 2,
    max_tokens: _MaxTokens = None,
    cache_tokens: CacheTokens = None,
    independent: Annotated[
        bool,
        typer.Option(
            help="Children of plus attend only to themselves. Use --no-independent for providers."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Answer the query in a file.

    [bold]Examples[/bold]

    relquery span run email.json --var n=4 --model demo --max-tokens 32

    relquery span run ask.span --corpus docs=notes.txt --json
    """
    query = _query(file, model, var, corpus, for_, arity, max_tokens)
    settings = {**query.settings, "independent": independent}
    with exits_when_interrupted():
        backend = _load(query.model, cache_tokens)
        with progress() as advance:
            for effect in query.effects:
                run(effect, backend, **settings)
            result = run(query.node, backend, progress=advance, **settings)
    if as_json:
        typer.echo(to_json(_document(result)))
    else:
        typer.echo(result.text)
    console = errors_console()
    notes = result.report.notes
    for note in notes[:_SHOWN_NOTES]:
        console.print(f"Note: {note}", markup=False, highlight=False)
    if len(notes) > _SHOWN_NOTES:
        console.print(f"... and {len(notes) - _SHOWN_NOTES} more notes (--json shows all).")
    console.print(str(result.report), highlight=False)


@span.command("explain")
def explain_file(
    file: _File,
    model: _Model = None,
    var: _Var = None,
    corpus: _Corpus = None,
    for_: _For = For.CACHE,
    arity: _Arity = 2,
    max_tokens: _MaxTokens = None,
    cache_tokens: CacheTokens = None,
    warm: Annotated[bool, typer.Option("--warm", help="Run the inner generations first.")] = False,
    cost: Cost = None,
) -> None:
    """Show which rules apply, and how many tokens of each prompt and span are cached.

    [bold]Example[/bold]

    relquery span explain email.json --var n=4 --warm --max-tokens 32
    """
    query = _query(file, model, var, corpus, for_, arity, max_tokens)
    with exits_when_interrupted():
        backend = _load(query.model, cache_tokens, cost)
        with progress() as advance:
            explanation = explain(
                query.node, backend, warm=warm, progress=advance, **query.settings
            )
    typer.echo(str(explanation))


@span.command("draw")
def draw_file(
    file: _File,
    var: _Var = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
) -> None:
    """Draw the query's tree, in the text form that the other commands read.

    [bold]Example[/bold]

    relquery span draw email.json --var n=4 --output email.span
    """
    node = read_query(file, var or (), _DEMO).node
    drawn = str(node)
    if output is None:
        typer.echo(drawn)
    else:
        output.write_text(f"{drawn}\n", encoding="utf-8")


def _query(
    file: str,
    model: str | None,
    var: list[str] | None,
    corpus: list[str] | None,
    for_: For,
    arity: int,
    max_tokens: int | None,
) -> _Query:
    query = read_query(file, var or (), model or _DEMO, max_tokens)
    for message in query.messages:
        say(message)
    goal: Goal = "cache" if for_ is For.CACHE else "attention"
    settings = {"for_": goal, "arity": arity, "corpora": read_corpora(query, corpus or ())}
    named = None if query.model == _UNNAMED else query.model
    effects = tuple(capped(effect, max_tokens) for effect in query.effects)
    return _Query(capped(query.node, max_tokens), effects, model or named or _DEMO, settings)


def _load(model: str, cache_tokens: int | None, cost: str | None = None) -> Backend:
    given = {"cache_tokens": cache_tokens, "cost": cost}
    options = {name: value for name, value in given.items() if value is not None}
    with errors_console().status(f"loading {model}"):
        return load(model, **options)


def _document(result: SpanResult) -> dict[str, object]:
    report = result.report
    return {
        "text": result.text,
        "texts": result.texts,
        "finish": None if result.answer is None else result.answer.finish.value,
        "notes": report.notes,
        "seconds": report.seconds,
        "prompt_tokens": report.prompt_tokens,
        "cached_tokens": report.cached_tokens,
        "output_tokens": report.output_tokens,
        "generations": [
            {
                "where": generation.where,
                "text": generation.answer.text,
                "finish": generation.answer.finish.value,
                "prompt_tokens": generation.answer.prompt_tokens,
                "cached_tokens": generation.answer.cached_tokens,
                "output_tokens": generation.answer.output_tokens,
            }
            for generation in report.generations
        ],
    }
