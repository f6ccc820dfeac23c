"""A query as a tree of token lists, of which `relquery.ir.forms.tokens.form` makes one sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.ir.nodes import Bag, Generate, Node, Prepare, Seq, Text
from relquery.ir.tree import Tree
from relquery.prompt import Role

Encode = Callable[[str, Role], Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Leaf(Tree):
    """Tokens.

    open_end: whether they are the answer of an inner generation right behind its input, so that an
        engine has them in its cache as whole blocks only.
    """

    tokens: tuple[int, ...]
    open_end: bool = False

    @property
    def own(self) -> tuple[object, ...]:
        return self.tokens, self.open_end

    @property
    def head(self) -> str:
        return f"{'answer' if self.open_end else 'tokens'} {list(self.tokens)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Join(Tree):
    """Children one after another; independent: each is a span, and attends only to itself."""

    children: tuple[SpanTree, ...]
    independent: bool = False

    @property
    def own(self) -> tuple[object, ...]:
        return (self.independent,)

    @property
    def head(self) -> str:
        return "spans" if self.independent else "join"


SpanTree = Leaf | Join


def span_tree(node: Node, encode: Encode, answers: Iterable[Sequence[int]] = ()) -> SpanTree:
    """The token tree of the prompt of one generation, or of what stands in one.

    A generation below an independent Bag stands with its input, as it lies in the cache; one that
    is not, or that is in the input of another, stands as its answer alone (paper 002, Def. 1).

    node: sugar is gone; a Generate at the root is the one that is asked for.
    encode: the tokens of a text that a role says, with what a chat template puts around it.
    answers: tokens of the inner generations' answers, in the order in which they stand.

    Raises QueryError for too few or too many answers, UnsupportedQueryError for other nodes.
    """
    known = iter(answers)
    built: list[SpanTree] = []
    for below, plus in _steps(node.input if isinstance(node, Generate) else node):
        match below:
            case Text(content, role):
                built.append(Leaf(tuple(encode(content, role))))
            case Generate():
                answer = Leaf(_next(known, below), open_end=plus)
                built.append(Join((built.pop(), answer)) if plus else answer)
            case Seq(children) | Bag(children):
                begin = len(built) - len(children)
                built[begin:] = [Join(tuple(built[begin:]), independent=plus)]
    if next(known, None) is not None:
        raise QueryError("There are more answers than inner generations; give one for each.")
    return built.pop()


def _steps(root: Node) -> Iterator[tuple[Node, bool]]:
    """Nodes, children first. With a join: whether it is +; with a Generate: whether it is in one.

    A Prepare is passed over for its input.
    """
    todo: list[tuple[Node, bool, bool]] = [(root, False, False)]  # is the last: children are done

    def enter(node: Node, mark: bool, children: tuple[Node, ...], in_span: bool) -> None:
        todo.append((node, mark, True))
        todo.extend((child, in_span, False) for child in reversed(children))

    while todo:
        node, in_span, done = todo.pop()
        match node:
            case _ if done or isinstance(node, Text):
                yield node, in_span
            case Prepare(x):
                todo.append((x, in_span, False))
            case Seq(children):
                enter(node, False, children, in_span)
            case Bag(children, "", independent):
                enter(node, independent, children, in_span or independent)
            case Generate(x) if in_span:
                opened = _opened(x)
                enter(node, True, (opened,), opened is not x)
            case Generate():
                enter(node, False, (), False)
            case _:
                raise _not_reduced(node)


def _opened(node: Node) -> Node:
    """x for plus(x): at the beginning of a span, a span of its own says nothing more."""
    while isinstance(node, Bag) and node.independent and len(node.children) == 1:
        node = node.children[0]
    return node


def _next(answers: Iterator[Sequence[int]], node: Generate) -> tuple[int, ...]:
    answer = next(answers, None)
    if answer is None:
        raise QueryError(
            f"The answer of an inner generation is missing: {node!r}. Run it first, and give the "
            "tokens of every inner answer in the order in which they stand."
        )
    return tuple(answer)


def _not_reduced(node: Node) -> UnsupportedQueryError:
    return UnsupportedQueryError(
        f"Token sequences are made of Text, Seq, Bags without separator, Prepare and Generate; got "
        f"{node!r}. Desugar the query first, and write separators into the texts."
    )
