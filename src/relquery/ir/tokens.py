"""A query as one token sequence, for engines that know only special tokens (paper 002, 5.2-5.3).

An independent sub-tree is in parentheses (Table 3): `(` begins it, `)(` (`)` in the paper) comes
between siblings, and `)n` ends it. n counts its tokens, including both parentheses, so `)n` at
position p points to `(` at p - n + 1. That gives the 6 of Figure 10 and the 7 of Figure 11. An
absolute position, which is another reading of section 5.2, would be 1 and 2 there, from 0.

An engine must do two things, which the authors' patch does not do (errata of paper 002):
- The key of a block that starts with `(` or `)(` leaves out everything before it. Its tokens must
  then not attend to that text either, on a miss or a hit; otherwise the key does not match what is
  stored.
- The key of a block that starts with `)n` covers everything before it again: the block before `(`,
  and every span up to here. The block's own tokens are not enough, as they repeat elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from relquery.errors import ConfigError, QueryError, UnsupportedQueryError
from relquery.ir.nodes import Bag, Generate, Node, Prepare, Seq, Text, Tree
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


class Mark(Enum):
    """A special token without a number."""

    PAD = "□"
    BEGIN = "("
    SIBLING = ")("


@dataclass(frozen=True, slots=True)
class End:
    """`)n`: ends the sub-tree of the last n tokens, including this one."""

    length: int


Item = int | Mark | End


@dataclass(frozen=True, slots=True)
class TokenForm:
    """A sequence of tokens and special tokens.

    outputs: for each inner generation's answer, the positions [begin, end) of its tokens. The
        tokens from the span's start up to `begin` are the prompt of that generation.
    """

    items: tuple[Item, ...]
    outputs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Aligned:
    """A form in blocks. cropped: for each output, the tokens cut from its end, often none."""

    form: TokenForm
    cropped: tuple[tuple[int, ...], ...]


def tokenize(tree: SpanTree) -> TokenForm:
    """The sequence of a token tree, without padding (5.2). An empty plus leaves no trace."""
    writer = _Writer()
    outputs: list[tuple[int, int]] = []
    todo: list[SpanTree | Mark | End] = [tree]
    while todo:
        match todo.pop():
            case Leaf(tokens, open_end):
                if open_end:
                    outputs.append((len(writer.items), len(writer.items) + len(tokens)))
                writer.items += tokens
            case Join(children, independent):
                todo += _parenthesized(children) if independent else reversed(children)
            case Mark() | End() as special:
                writer.put(special)
    return TokenForm(tuple(writer.items), tuple(outputs))


def align(form: TokenForm, block_size: int, *, crop: bool = False) -> Aligned:
    """The form with pads, so that special tokens come first in their blocks (5.3.1).

    crop: cut from answers of inner generations the end that does not fill a block (5.3.2), because
        an engine keeps no partial blocks. Each answer then starts a block, after pads that its own
        prompt must also have. An answer shorter than a block stays whole: computing it again
        costs less than losing it.
    block_size: tokens in a block. Raises ConfigError if it is below 1.
    """
    if block_size < 1:
        raise ConfigError(f"block_size is {block_size}; it must be at least 1.")
    writer = _Writer(block_size)
    outputs: list[tuple[int, int]] = []
    cropped: list[tuple[int, ...]] = []
    at = 0
    for begin, end in form.outputs:
        writer.put_all(form.items[at:begin])
        answer = tuple(item for item in form.items[begin:end] if isinstance(item, int))
        kept = len(answer)
        if crop and kept:
            writer.pad()
            kept = kept - kept % block_size or kept
        outputs.append((len(writer.items), len(writer.items) + kept))
        cropped.append(answer[kept:])
        writer.items += answer[:kept]
        at = end
    writer.put_all(form.items[at:])
    return Aligned(TokenForm(tuple(writer.items), tuple(outputs)), tuple(cropped))


class _Writer:
    """Collects items. Special tokens start blocks, and an End gets its length."""

    def __init__(self, block_size: int = 1) -> None:
        self.items: list[Item] = []
        self._block_size = block_size
        self._begins: list[int] = []

    def pad(self) -> None:
        """Fill the current block with pads."""
        self.items += [Mark.PAD] * (-len(self.items) % self._block_size)

    def put(self, special: Mark | End) -> None:
        self.pad()
        if special is Mark.BEGIN:
            self._begins.append(len(self.items))
        elif isinstance(special, End):
            special = End(len(self.items) - self._begins.pop() + 1)
        self.items.append(special)

    def put_all(self, items: Iterable[Item]) -> None:
        """Add items, placing their pads again."""
        for item in items:
            if isinstance(item, int):
                self.items.append(item)
            elif item is not Mark.PAD:
                self.put(item)


def _parenthesized(children: tuple[SpanTree, ...]) -> list[SpanTree | Mark | End]:
    """`( a )( b )n` for a stack, last part first; n is computed when it is written."""
    if not children:
        return []
    parts: list[SpanTree | Mark | End] = [End(0)]
    for child in reversed(children):
        parts += [child, Mark.SIBLING]
    return [*parts[:-1], Mark.BEGIN]
