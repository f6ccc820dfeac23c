"""A prompt as pieces, runs of tokens that are computed, stored and named together, and the keys
that name their blocks.

A chain is a sequence of tokens that attend to what comes before them in the chain; independent
spans are chains inside another chain. Each run of a chain's own tokens, up to the next span, is a
piece. In document order a piece attends to all pieces since the beginning of its chain: to those of
the chain itself and to those of the spans in it. Positions follow one another in document order,
unless a chain says `At`; what attends to what does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from math import inf
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from relquery.arrays import TokenIds

ROOT = b""
"""Key before the first block of every chain."""


class Adapter(NamedTuple):
    """A change of a network for some requests, which share no states with others.

    number: by which the executor knows it, from 1 on; 0 for the network as it is. key: before the
    first block of every chain that is computed with it.
    """

    number: int = 0
    key: bytes = ROOT


PLAIN = Adapter()


class _Named(NamedTuple):
    """Blocks whose keys were computed: bytes of their tokens and of a block, and the key before."""

    content: bytes
    size: int
    previous: bytes
    keys: tuple[bytes, ...]


_latest = [_Named(b"", 0, ROOT, ())]
"""The latest of them alone. Prompts in a good order begin as the one before does, and comparing
takes a tenth of hashing."""


def chain_keys(tokens: TokenIds, block_size: int, previous: bytes) -> list[bytes]:
    """Keys of the blocks of `tokens`, first to last: `key_i = H(key_{i-1}, tokens_i)`.

    tokens: (n,); the last block may have fewer than block_size of them. previous: the key before
    the first block. A key has 16 bytes and depends on all tokens up to its block's end: two blocks
    share one only if everything they attend to is the same.
    """
    content, size = tokens.tobytes(), block_size * tokens.itemsize
    keys: list[bytes] = []
    known = _latest[0]
    if known.size == size and known.previous == previous:
        keys += known.keys[: _common(known.content, content) // size]
    key = keys[-1] if keys else previous
    for start in range(len(keys) * size, len(content), size):
        key = blake2b(key + content[start : start + size], digest_size=16).digest()
        keys.append(key)
    if len(keys) > 1:  # not while a request decodes
        _latest[0] = _Named(content, size, previous, tuple(keys))
    return keys


def _common(one: bytes, other: bytes) -> int:
    """How many bytes are the same at the beginning of both."""
    length = min(len(one), len(other))
    same = np.frombuffer(one, np.uint8, length) == np.frombuffer(other, np.uint8, length)
    return length if same.all() else int(same.argmin())


def key_after(previous: bytes, span: bytes, position: int) -> bytes:
    """Key of a chain in which an independent span follows the part named by `previous`.

    span: the key of the span. position: of the span's first token, in the chain.
    """
    content = previous.ljust(16, b"\0") + span + position.to_bytes(8)
    return blake2b(content, digest_size=16, person=b"span").digest()


def key_at(position: int, previous: bytes = ROOT) -> bytes:
    """Key before the first block of what begins at a position that does not follow from what is
    before it: a span whose states are bound to a position, and what follows a gap."""
    content = position.to_bytes(8) + previous
    return blake2b(content, digest_size=16, person=b"position").digest()


def key_around_placeholder(previous: bytes) -> bytes:
    """Key before the first block of a placeholder, or of what follows it in its chain.

    What follows the chain does not attend to the placeholder, so where it begins and ends matters.
    """
    return blake2b(previous, digest_size=16, person=b"placeholder").digest()


def key_of_owner(tenant: str) -> bytes:
    """The key of a tenant, which the keys of its own chains depend on."""
    content = tenant.encode(errors="surrogatepass")
    return blake2b(content, digest_size=16, person=b"owner").digest()


def key_owned(owner: bytes, previous: bytes) -> bytes:
    """Key before the first block of a chain that only one tenant may reuse. previous: the key that
    the chain would have if all could."""
    return blake2b(owner + previous, digest_size=16, person=b"owned").digest()


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Tokens that attend to what comes before them in the chain, and to nothing outside it.

    parts: token ids (n,), and between them other chains: independent spans. A Keep in the midst of
    tokens changes nothing but how long their states stay. keep: the higher, the
    longer its states stay in the cache once nobody uses them; 0 as long as others. names: for a
    chain that several requests of one engine have: the keys of each of its pieces' blocks, as far
    as they were needed.
    """

    parts: tuple[Part, ...]
    keep: int = 0
    names: list[list[bytes]] | None = None


@dataclass(frozen=True, slots=True)
class At:
    """A new position for what follows in a chain, counted from where the chain begins."""

    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder:
    """Tokens (n,) of a chain that later tokens of the chain itself attend to, and nothing else
    (paper 001, section 3.3: the states of an argument take the place of theirs)."""

    tokens: TokenIds


class Keep(NamedTuple):
    """A mark: the chain up to here stays in the cache once nobody uses it.

    level: the higher, the longer. seconds: since its last use; then it stays as long as others.
    """

    level: int
    seconds: float = inf


Part: TypeAlias = "TokenIds | Chain | At | Placeholder | Keep"


@dataclass(slots=True, eq=False)
class ChainPiece:
    """A run of a chain's own tokens, and how far its states are in the cache.

    tokens: (n,) ids of the prompt. chain: which of the request's chains has it, by number. first:
        number of the piece that its chain begins with, which may be of a span.
    start: position of its first token, counted from where its chain's positions begin; origin:
        where that is, in the request. anchor: position that its states are bound to.
    previous: the piece before it in its chain. spans: the last piece of each span between both,
        and the span's position in the chain. closed: whether no output can follow in this piece.
    jumps: whether its positions do not follow those of what is before it. hidden: whether its
        chain alone attends to it. keep: see Chain. keeps: (tokens of the piece, Keep) for each
        Keep in it: what its chain has up to these tokens is kept. owner: the key of the tenant
        whose chain it is of; b"" if all share it.
    blocks: the blocks it holds. slots: (blocks x block size,) of their tokens. room: the memory of
        the slots, with room for more. done: tokens computed or served from the cache. run: of the
        decode steps since it holds its blocks (see Chunk). keys: of its blocks, as far as they were
        needed. root: the key before them.
    """

    tokens: TokenIds
    chain: int
    first: int
    start: int
    origin: int
    anchor: int
    previous: int | None
    spans: tuple[tuple[int, int], ...]
    closed: bool = True
    jumps: bool = False
    hidden: bool = False
    keep: int = 0
    keeps: tuple[tuple[int, Keep], ...] = ()
    owner: bytes = b""
    blocks: list[int] = field(default_factory=list)
    slots: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    room: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    done: int = 0
    run: int = 0
    keys: list[bytes] = field(default_factory=list)
    root: bytes | None = None

    @property
    def last_key(self) -> bytes:
        """The key of the whole chain up to the piece's end, once its keys are known."""
        assert self.root is not None
        return self.keys[-1] if self.keys else self.root

    def hold(self, blocks: list[int], block_size: int) -> None:
        """Add blocks after those that it holds."""
        before = len(self.blocks) * block_size
        whole = before + len(blocks) * block_size
        if whole > len(self.room):
            room = np.empty(max(2 * before, whole), np.int64)
            room[:before] = self.slots[:before]
            self.room = room
        slots = self.room[before:whole]
        own = _numbers(block_size)
        if len(blocks) == 1:  # while it decodes
            np.add(own, blocks[0] * block_size, out=slots)
        else:
            firsts = np.array(blocks, np.int64)[:, None] * block_size
            np.add(firsts, own, out=slots.reshape(-1, block_size))
        self.slots = self.room[:whole]
        self.blocks += blocks

    def let_go(self) -> None:
        """Forget the blocks and what they held."""
        self.blocks, self.done, self.run = [], 0, 0
        self.slots = self.room = np.empty(0, np.int64)


@cache
def _numbers(count: int) -> npt.NDArray[np.int64]:
    return np.arange(count)


@dataclass(slots=True, eq=False)
class _Open:
    """A chain being laid out.

    number: of the chain in the request. begin: its position there. keep, names: see Chain. named:
    how many of its pieces are laid out. end: the position after these, in the chain. own: tokens
    that are not laid out yet. jumps: whether the next of them follow a gap. keeps: of the next
    piece.
    """

    todo: list[Part]
    number: int
    first: int
    begin: int
    keep: int = 0
    names: list[list[bytes]] | None = None
    named: int = 0
    end: int = 0
    own: list[TokenIds] = field(default_factory=list)
    previous: int | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)
    jumps: bool = False
    keeps: list[tuple[int, Keep]] = field(default_factory=list)


Placing = Literal["chain", "bound"]
"""Where the positions of a span begin. "chain": at 0, and its states can be used at any position.
"bound": at its place in the request, which is part of its keys because its states cannot be used
anywhere else."""


def lay_out(chain: Chain, placing: Placing = "chain") -> list[ChainPiece]:
    """The pieces of a prompt in document order; the last one is open: the answer grows in it.

    Spans without tokens vanish.
    """
    pieces: list[ChainPiece] = []
    path, chains = [_open(chain, 0, 0, 0)], 1
    while True:
        last = path[-1]
        if last.todo:
            match last.todo.pop():
                case Chain() as span:
                    _close(pieces, last, placing)
                    path.append(_open(span, chains, len(pieces), last.begin + last.end))
                    chains += 1
                case At(position):
                    _jump(pieces, last, placing, position)
                case Placeholder(tokens) if len(tokens):
                    _close(pieces, last, placing)
                    last.own.append(tokens)
                    _close(pieces, last, placing, hidden=True)
                case Placeholder():
                    pass
                case Keep() as keep:
                    last.keeps.append((sum(map(len, last.own)), keep))
                case tokens:
                    last.own += [tokens] if len(tokens) else []
            continue
        path.pop()
        if not path:
            _close(pieces, last, placing, ends=True)
            pieces[-1].closed = False
            return pieces
        if last.own or last.spans or last.previous is not None:
            _close(pieces, last, placing, ends=True)
            path[-1].spans.append((len(pieces) - 1, path[-1].end))
            path[-1].end += last.end
        else:
            _reopen(pieces, path[-1])


def _open(chain: Chain, number: int, first: int, begin: int) -> _Open:
    return _Open(list(reversed(chain.parts)), number, first, begin, chain.keep, chain.names)


def _close(
    pieces: list[ChainPiece], at: _Open, placing: Placing, ends: bool = False, hidden: bool = False
) -> None:
    """End a piece at a gap, the beginning of a span or the end of the chain.

    A chain that ends with a span has an empty piece after it, whose key names the whole chain.
    """
    if not at.own and not ends:
        return
    tokens = np.concatenate(at.own) if at.own else np.empty(0, np.int32)
    origin = at.begin if placing == "chain" else 0
    anchor = at.begin if placing == "bound" else 0
    start = at.begin + at.end - origin
    spans = tuple(at.spans)
    piece = ChainPiece(tokens, at.number, at.first, start, origin, anchor, at.previous, spans)
    piece.jumps, piece.hidden, piece.keep = at.jumps, hidden, at.keep
    piece.keeps, at.keeps = tuple(at.keeps), []
    if at.names is not None and placing == "chain":  # then keys depend on the chain alone
        if at.named == len(at.names):
            at.names.append([])
        piece.keys = at.names[at.named]
        at.named += 1
    pieces.append(piece)
    at.previous, at.end = len(pieces) - 1, at.end + len(tokens)
    at.own, at.spans, at.jumps = [], [], False


def _jump(pieces: list[ChainPiece], at: _Open, placing: Placing, position: int) -> None:
    """Go on at a position of the chain."""
    if position != at.end + sum(map(len, at.own)):
        _close(pieces, at, placing)
        at.end, at.jumps = position, True


def _reopen(pieces: list[ChainPiece], at: _Open) -> None:
    """Undo the end of a piece before a span that has no tokens."""
    last = None if at.previous is None or at.spans or at.jumps else pieces[at.previous]
    if last is not None and not last.hidden:
        pieces.pop()
        at.own, at.spans, at.previous = [last.tokens], list(last.spans), last.previous
        at.end, at.jumps = at.end - len(last.tokens), last.jumps
        at.keeps = list(last.keeps)


def depths(pieces: list[ChainPiece]) -> list[int]:
    """How deeply each piece is nested in spans; 0 for pieces of the prompt's own chain.

    A span's pieces, and those of all spans in it, lie from the first of its chain to the last.
    """
    followed = {piece.previous for piece in pieces}
    change = [0] * (len(pieces) + 1)
    for index, piece in enumerate(pieces):
        if index not in followed:
            change[piece.first] += 1
            change[index + 1] -= 1
    return [spans - 1 for spans in accumulate(change[:-1])]


def find_root(pieces: list[ChainPiece], piece: ChainPiece, root: bytes = ROOT) -> bytes:
    """The key before a piece's first block; it covers everything the piece attends to.

    All pieces before it must have all their keys. root: the key before every chain; see Adapter.
    """
    if piece.previous is not None:
        before = pieces[piece.previous]
        key = key_around_placeholder(before.last_key) if before.hidden else before.last_key
    else:
        key = key_at(piece.anchor, root) if piece.anchor else root
        if piece.owner:
            key = key_owned(piece.owner, key)
    for last, position in piece.spans:
        key = key_after(key, pieces[last].last_key, position)
    if piece.jumps:
        key = key_at(piece.start, key)
    return key_around_placeholder(key) if piece.hidden else key
