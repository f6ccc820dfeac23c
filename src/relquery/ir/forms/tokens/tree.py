"""A query as a tree of token lists. `relquery.ir.forms.tokens.form` turns it into one sequence."""

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

    open_end: whether they are the answer of an inner generation right after its input. An engine
        then caches only whole blocks of them.
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
    """Children in sequence. independent: each child is a span that attends only to itself."""

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
    """The token tree of the prompt of one generation, or of a part of its input.

    A generation below an independent Bag includes its input, as in the cache. Any other generation,
    or one in the input of another, appears only as its answer (paper 002, Def. 1).

    node: desugared; a Generate at the root is the generation whose prompt is wanted.
    encode: the tokens of a text by a role, including those that a chat template adds around it.
    answers: tokens of the inner generations' answers, in tree order.

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
        raise QueryError("There are more answers than inner generations. Give one for each.")
    return built.pop()


def _steps(root: Node) -> Iterator[tuple[Node, bool]]:
    """(node, flag) pairs, children first. The flag of a join: it is +; of a Generate: it is in a +.

    A Prepare is replaced by its input.
    """
    todo: list[tuple[Node, bool, bool]] = [(root, False, False)]  # the last flag: children are done

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
    """x for plus(x): at the start of a span, another span around x changes nothing."""
    while isinstance(node, Bag) and node.independent and len(node.children) == 1:
        node = node.children[0]
    return node


def _next(answers: Iterator[Sequence[int]], node: Generate) -> tuple[int, ...]:
    answer = next(answers, None)
    if answer is None:
        raise QueryError(
            f"The answer of an inner generation is missing: {node!r}. Run it first, and give the "
            "tokens of every inner answer in tree order."
        )
    return tuple(answer)


def _not_reduced(node: Node) -> UnsupportedQueryError:
    return UnsupportedQueryError(
        f"Token sequences can contain only Text, Seq, Bags without separator, Prepare and "
        f"Generate; got {node!r}. Desugar the query first, and write separators into the texts."
    )
