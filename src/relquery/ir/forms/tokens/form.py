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

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from relquery.errors import ConfigError, QueryError
from relquery.ir.forms.tokens.tree import Join, Leaf, SpanTree


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


@dataclass(frozen=True, slots=True)
class SpanTokens:
    """Token ids of the special tokens.

    begin and sibling may be the same id, and pad may be an id that occurs in texts, e.g. a space
    (5.2). The other ids must not occur in texts, or a reader of the sequence would see a span.
    """

    pad: int
    begin: int
    sibling: int
    end: int

    def __post_init__(self) -> None:
        if self.end in (self.begin, self.sibling) or self.pad in self.marks:
            raise ConfigError(
                f"Special tokens clash: {self}. Only begin and sibling may be the same."
            )

    @property
    def marks(self) -> frozenset[int]:
        """All special ids except the pad."""
        return frozenset((self.begin, self.sibling, self.end))


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


def token_ids(form: TokenForm, special: SpanTokens) -> tuple[tuple[int, ...], dict[int, int]]:
    """The sequence as ids, and n of `)n` for each position of an end token.

    Raises QueryError if a text contains the id of a special token other than the pad.
    """
    ids: list[int] = []
    lengths: dict[int, int] = {}
    names = {Mark.PAD: special.pad, Mark.BEGIN: special.begin, Mark.SIBLING: special.sibling}
    for position, item in enumerate(form.items):
        if isinstance(item, Mark):
            ids.append(names[item])
        elif isinstance(item, End):
            lengths[position] = item.length
            ids.append(special.end)
        elif item in special.marks:
            raise QueryError(
                f"Token {position} of the text is {item}, the id of a special token. Choose an id "
                "that does not occur in texts, or remove it from the text."
            )
        else:
            ids.append(item)
    return tuple(ids), lengths


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
