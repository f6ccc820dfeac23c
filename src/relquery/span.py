"""Span queries, as people write them: `from relquery import span` (paper 002, section 4).

This query has four answers, and a fifth that chooses among them and reads them in any order:

    >>> from relquery import optimize, span
    >>> email = span.generate(span.system("Write short emails."), "Apply for a job as a cook.",
    ...                       max_tokens=200, temperature=0.8, seed=1)
    >>> best = span.generate("Which is the best email?", span.plus(span.repeat(4, email)))
    >>> print(best)
    generate
      seq
        user "Which is the best email?"
        plus
          generate max_tokens=200 temperature=0.8 seed=1
            seq
              system "Write short emails."
              user "Apply for a job as a cook."
          generate max_tokens=200 temperature=0.8 seed=2
            seq
              system "Write short emails."
              user "Apply for a job as a cook."
          generate max_tokens=200 temperature=0.8 seed=3
            seq
              system "Write short emails."
              user "Apply for a job as a cook."
          generate max_tokens=200 temperature=0.8 seed=4
            seq
              system "Write short emails."
              user "Apply for a job as a cook."
    >>> pairwise = optimize(best, for_="attention")

Wherever a child is expected, text stands for a user message, and a list or generator for its
items. Anything else raises QueryError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import count
from typing import TypedDict, Unpack

from relquery.errors import ConfigError, QueryError, type_of, unknown
from relquery.ir.nodes import (
    MAX_DEPTH,
    MAX_NODES,
    NODES,
    Bag,
    Chat,
    Fragment,
    Generate,
    Node,
    Prepare,
    Retrieve,
    Seq,
    Text,
)
from relquery.ir.text import parse_tree as parse
from relquery.ir.wire import from_wire, to_wire
from relquery.prompt import Role, Sampling

__all__ = [
    "Child",
    "GenerationSettings",
    "assistant",
    "bag",
    "chat",
    "cross",
    "fragment",
    "from_wire",
    "generate",
    "parse",
    "plus",
    "prepare",
    "repeat",
    "retrieve",
    "seq",
    "system",
    "to_wire",
    "user",
]

Child = Node | str | Iterable["Child"]
_MOST_CHILDREN = 2_000_000  # per call


class GenerationSettings(TypedDict, total=False):
    """Settings of how an answer is chosen; see `relquery.Sampling`."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stop: Iterable[str]
    labels: Iterable[str]


def system(text: str) -> Text:
    """A system message."""
    return Text(text, Role.SYSTEM)


def user(text: str) -> Text:
    """A user message; plain text is one too."""
    return Text(text)


def assistant(text: str) -> Text:
    """A message from the model, such as an earlier answer."""
    return Text(text, Role.ASSISTANT)


def fragment(text: str) -> Fragment:
    """A piece of a corpus. As a child of `plus` it is computed separately, before it is used."""
    return Fragment(text)


def seq(*children: Child) -> Seq:
    """The children one after another (⋈ in the paper); each sees those before it.

    Each text among them is a separate message.
    """
    return Seq(_nodes("seq", children))


cross = seq


def plus(*children: Child) -> Bag:
    """The children in whatever order is cheapest, each seeing only itself (+ in the paper).

    A generation among them is read with its input, as it is in the cache. A plus in a child is
    seen by what follows it in that child, and by nothing outside.
    """
    return Bag(_nodes("plus", children), independent=True)


def bag(*children: Child, separator: str = "") -> Bag:
    """The children in the order that shares most with other prompts; each sees those before it.

    With a separator they are a list in the message around them, otherwise separate messages.
    """
    return Bag(_nodes("bag", children), separator)


def generate(*input: Child, **settings: Unpack[GenerationSettings]) -> Generate:
    """The model's answer to the input; several pieces are a `seq`.

    settings: those of `relquery.Sampling`, e.g. max_tokens=16. Raises ConfigError for any other.
    """
    return Generate(_joined("generate", input), _sampling(settings))


def chat(*children: Child, **settings: Unpack[GenerationSettings]) -> Chat:
    """Chat completion: the model's answer to the messages in order."""
    return Chat(_nodes("chat", children), _sampling(settings))


def prepare(*input: Child) -> Prepare:
    """Compute the input's states before they are used (G¹ in the paper); it reads as its input."""
    return Prepare(_joined("prepare", input))


def retrieve(*query: Child, corpus: str, limit: int = 5) -> Retrieve:
    """At most `limit` texts of a corpus that match the query best, in any order.

    corpus: a name for the function that searches, `optimize(..., retrieve=f)`.
    """
    return Retrieve(_joined("retrieve", query), corpus, limit)


def repeat(n: int, child: Child) -> tuple[Node, ...]:
    """The same child n times, as children for a join: `plus(repeat(4, generate(...)))`.

    A generation with a temperature above 0 and a seed would give n equal answers, so its copies
    take the seeds `seed`, `seed + 1`, and so on. Without a seed each copy is sampled separately,
    and at temperature 0 all n answers are equal. Generations deeper in the child do not change.
    Raises QueryError if n is less than 1, or more than a query may have nodes.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_NODES:
        raise QueryError(f"repeat has n={n!r}; it must be a whole number from 1 to {MAX_NODES:,}.")
    node = _joined("repeat", (child,))
    if isinstance(node, Generate | Chat) and node.sampling.temperature > 0:
        seed = node.sampling.seed
        if seed is not None:
            return tuple(_with_seed(node, seed + i) for i in range(n))
    return (node,) * n


def _with_seed(node: Generate | Chat, seed: int) -> Node:
    sampling = replace(node.sampling, seed=seed)
    if isinstance(node, Generate):
        return Generate(node.input, sampling)
    return Chat(node.children, sampling)


def _joined(parent: str, children: Iterable[Child]) -> Node:
    nodes = _nodes(parent, children)
    return nodes[0] if len(nodes) == 1 else Seq(nodes)


def _nodes(parent: str, children: Iterable[Child]) -> tuple[Node, ...]:
    """The children as nodes, with lists and generators expanded."""
    return tuple(_expanded(parent, children, count(1)))


def _expanded(
    parent: str, children: Iterable[Child], seen: Iterator[int], depth: int = 0
) -> Iterator[Node]:
    """seen: counts children and lists."""
    if depth > MAX_DEPTH:
        raise QueryError(f"span.{parent} has lists in lists without end. Does one contain itself?")
    for child in children:
        if next(seen) > _MOST_CHILDREN:
            raise QueryError(
                f"span.{parent} has more than {_MOST_CHILDREN:,} children, including those in "
                "lists. Is one an endless generator? Otherwise split it into several queries."
            )
        if isinstance(child, NODES):
            yield child
        elif isinstance(child, str):
            yield Text(child)
        elif isinstance(child, Iterable) and not isinstance(child, bytes | dict):
            yield from _expanded(parent, child, seen, depth + 1)
        else:
            raise QueryError(
                f"span.{parent} has {type_of(child)} as a child; it takes strings, "
                "nodes made by relquery.span, and lists of these. Convert other values to text."
            )


def _sampling(settings: GenerationSettings) -> Sampling:
    known = [setting.name for setting in fields(Sampling)]
    for name in settings:
        if name not in known:
            raise ConfigError(unknown("setting", name, known))
    texts: dict[str, tuple[str, ...]] = {}
    for name, value in (
        ("stop", settings.get("stop", ())),
        ("labels", settings.get("labels", ())),
    ):
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ConfigError(f"{name} is {value!r}; it must be a list of strings.")
        texts[name] = tuple(value)
    return Sampling(**{**settings, **texts})  # type: ignore[arg-type]
