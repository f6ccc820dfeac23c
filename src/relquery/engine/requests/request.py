"""One request in the engine: its tokens, its progress, what it may answer and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Protocol

import numpy as np

from relquery.arrays import Int64s, TokenIds
from relquery.engine.requests.labels import Drafts, LabelTrie
from relquery.engine.requests.pieces import (
    PLAIN,
    Adapter,
    Chain,
    ChainPiece,
    Keep,
    Placing,
    chain_keys,
    find_root,
    lay_out,
)
from relquery.prompt import Adjustments, Finish, TokenLogprob

Tokens = Sequence[int]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that the requests of one call share.

    end: token ids that end the answer and are not part of it. labels: if not empty, the answer is
    one of these token sequences. stop: whether an output that has just grown contains a stop
    string. decided: whether an unfinished output can no longer equal any of the compared texts.
    """

    end: frozenset[int] = frozenset()
    labels: tuple[tuple[int, ...], ...] = ()
    stop: Callable[[Tokens], bool] | None = None
    decided: Callable[[Tokens], bool] | None = None

    @property
    def is_free(self) -> bool:
        """Whether only an end token or its length ends the answer."""
        return not self.labels and self.stop is None and self.decided is None

    def finish(self, output: Tokens) -> Finish | None:
        """How an output that has just grown has ended; None if it goes on."""
        if self.labels and self._chosen(output):
            return Finish.STOP
        if self.stop is not None and self.stop(output):
            return Finish.STOP
        if self.decided is not None and self.decided(output):
            return Finish.DECIDED
        return None

    def allowed_next(self, output: Tokens) -> tuple[int, ...]:
        """Token ids that may follow an output under `labels`, sorted; empty for all.

        If the output is itself a label and a longer label begins with it, the end tokens are
        allowed too.
        """
        if not self.labels:
            return ()
        done, begun = len(output), list(output)
        possible = [label for label in self.labels if list(label[:done]) == begun]
        following = {label[done] for label in possible if len(label) > done}
        if any(len(label) == done for label in possible):
            following |= self.end
        return tuple(sorted(following))

    def forced(self, output: Tokens) -> int | None:
        """The only token that may follow, which needs no step; None if there is a choice."""
        allowed = self.allowed_next(output)
        return allowed[0] if len(allowed) == 1 else None

    def _chosen(self, output: Tokens) -> bool:
        """Whether an output is a label that no other label continues."""
        done, begun = len(output), list(output)
        return not any(len(label) > done and list(label[:done]) == begun for label in self.labels)


class Matcher(Protocol):
    """The state of one answer in a grammar. It moves on as the answer grows.

    A token is *forced* if no other token may come next. Forced tokens need no draw: they are
    computed together with the token before them. Where each is to be drawn nevertheless, a matcher
    gives none, and allows them one after the other.
    """

    def begin(self, most: int) -> list[int]:
        """Take the forced tokens that the answer begins with, and return them.

        most: how many at most. One token at least is left to be drawn, so that a forward pass gives
        the answer.
        """

    def take(self, token: int) -> list[int]:
        """Take a drawn token; returns it and the forced tokens after it, which are taken too."""

    def allowed(self) -> Int64s:
        """Ids that may come next, sorted; with end tokens if the answer may end here."""

    @property
    def is_over(self) -> bool:
        """Whether nothing but the end can follow."""

    @property
    def error(self) -> str | None:
        """Why the answer cannot be continued although it is not over, if it cannot."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Changes of the logits of one request's draws: by its settings, and by its tokens."""

    adjustments: Adjustments
    prompt: Int64s
    """The prompt's different tokens, where they count; else none."""
    output: list[int]
    """The answer's tokens so far: the request's own list, which grows."""
    end: tuple[int, ...]
    """Tokens that are not drawn before the answer has its least length."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The way in which the next token is chosen from the logits.

    seed: base of the random stream; with the number of tokens drawn so far it fixes each draw.
    allowed: the only token ids to choose from; empty for all. weigh: choose no token, but return
    the log-probabilities of the allowed tokens at temperature 1, among themselves or, with
    among_all, among all tokens. matcher: only tokens that it allows when they are drawn.
    logprobs: also return the token's log-probability among all tokens, and that of so many of the
    likeliest; None for neither. Then a matcher must not give several tokens at a time. history:
    changes the logits first; None for as they are.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    allowed: tuple[int, ...] = ()
    weigh: bool = False
    among_all: bool = False
    matcher: Matcher | None = None
    logprobs: int | None = None
    history: History | None = None


_ANY = Rules()


@dataclass(slots=True, eq=False)
class Request:
    """A prompt on its way to an answer. Only the engine's loop changes it.

    source: the prompt, token ids (n,) or a chain. placing: see relquery.engine.requests.pieces.
    max_tokens: the answer's limit, also from the context length. rules: what the answer may be.
    drafts: likely answers, computed with the prompt; for greedy draws. group: id of the
    relQuery that the request belongs to. scored: weigh all labels in the step that ends the prompt,
    and decode nothing (paper 004). trie: the labels of a scored request, built here if None;
    requests of one call share one. adapter: that it is computed with. prompt_logprobs: also tell
    how likely each token of the prompt is, and so many of the likeliest at its place; the prompt is
    one piece, and the request alone.
    """

    id: int
    source: InitVar[TokenIds | Chain]
    max_tokens: int
    draw: Draw = Draw()
    rules: Rules = _ANY
    drafts: Drafts | None = None
    group: int = 0
    scored: bool = False
    trie: LabelTrie | None = None
    arrival: float = 0.0
    adapter: Adapter = PLAIN
    placing: InitVar[Placing] = "chain"
    prompt_logprobs: int | None = None

    pieces: list[ChainPiece] = field(init=False)
    prompt_tokens: int = field(init=False)
    output: list[int] = field(default_factory=list)
    finish: Finish | None = None
    error: str | None = None
    alone: bool = False
    """Whether it neither reads states that others computed nor lets others read its own."""
    started_at: float | None = None
    """When the first step with it began."""
    first_at: float | None = None
    """When the first token of the answer was there."""
    finished_at: float | None = None
    cached: int | None = None
    """Prompt tokens served from the cache at first admission; None before that."""
    scores: tuple[float, ...] | None = None
    """Log-probability of each label, once a scored request has ended."""
    logprobs: list[TokenLogprob] | None = None
    """Of each token of the output, where its draws return them."""
    prompt_told: list[TokenLogprob] = field(default_factory=list)
    """Of the tokens of the prompt so far, where they are asked for."""

    def __post_init__(self, source: TokenIds | Chain, placing: Placing) -> None:
        chain = source if isinstance(source, Chain) else Chain((source,))
        self.pieces = lay_out(chain, placing)
        if self.adapter.number:
            for piece in self.pieces:
                piece.keys = []  # those of the chain are of the network as it is
        self.prompt_tokens = sum(len(piece.tokens) for piece in self.pieces)
        if self.scored and self.trie is None:
            self.trie = LabelTrie(self.rules.labels, self.rules.end)

    def prompt_draws(self, start: int, stop: int) -> tuple[Draw, ...]:
        """Draws of the prompt's own tokens after start..stop, which are computed next."""
        if self.prompt_logprobs is None or len(self.prompt_told) == self.prompt_tokens:
            return ()
        tokens = self.pieces[0].tokens
        if start == 0:
            self.prompt_told[:] = [TokenLogprob(int(tokens[0]), 0.0)]
        following = tokens[start + 1 : stop + 1].tolist()
        return tuple(Draw(allowed=(each,), logprobs=self.prompt_logprobs) for each in following)

    def begin(self) -> None:
        """Begin the answer with the tokens that its grammar forces; for a new request."""
        if self.draw.logprobs is not None:
            self.logprobs = []
        if self.draw.matcher is not None:
            self.output[:] = self.draw.matcher.begin(self.max_tokens - 1)  # a history has the list

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return self.prompt_tokens + len(self.output)

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are in the cache."""
        if len(self.pieces) == 1:  # the usual case; called for every request in every step
            return self.pieces[0].done
        return sum(piece.done for piece in self.pieces)

    @property
    def end(self) -> int:
        """The position after all tokens of the prompt. Without gaps it is their number."""
        return max(piece.origin + piece.start + len(piece.tokens) for piece in self.pieces)

    @property
    def prefill_only(self) -> bool:
        """Whether the step that ends the prompt gives the answer, so that only requests with the
        same beginning read its states."""
        return self.scored or self.max_tokens == 1

    @property
    def drafting(self) -> bool:
        """Whether the step that ends the prompt also computes drafts."""
        return self.drafts is not None and not self.output

    @property
    def beside(self) -> int:
        """Tokens that the step which ends the prompt computes in addition to it."""
        if self.trie is not None:
            return self.trie.tokens
        return self.drafts.tokens if self.drafts is not None and self.drafting else 0

    @property
    def decoding(self) -> bool:
        """Whether only the newest token remains to be computed."""
        computed = self.computed
        return computed > 0 and self.prompt_tokens + len(self.output) - computed == 1

    @property
    def blocks(self) -> list[int]:
        """Blocks that it holds, starting with its first piece."""
        if len(self.pieces) == 1:
            return self.pieces[0].blocks
        return [block for piece in self.pieces for block in piece.blocks]

    @property
    def kept_tokens(self) -> tuple[int, ...]:
        """Tokens of the prompt up to each Keep of its own chain."""
        counts, before = [], 0
        for piece in self.pieces:
            if piece.chain == 0:
                counts += [before + tokens for tokens, _ in piece.keeps]
            before += len(piece.tokens)
        return tuple(counts)

    def kept_blocks(self, block_size: int) -> Iterator[tuple[list[int], Keep]]:
        """Blocks that it holds and that stay in the cache, whole ones alone, and how long."""
        for index, piece in enumerate(self.pieces):
            for tokens, keep in piece.keeps:
                for before in self.pieces[piece.first : index]:
                    yield before.blocks, keep
                is_all = piece.closed and tokens == len(piece.tokens)
                whole = len(piece.blocks) if is_all else tokens // block_size
                yield piece.blocks[:whole], keep

    def size(self, index: int) -> int:
        """Tokens of a piece; the last piece includes the output."""
        piece = self.pieces[index]
        return len(piece.tokens) + (0 if piece.closed else len(self.output))

    def tokens(self, index: int, start: int, stop: int) -> TokenIds:
        """Token ids start..stop of a piece."""
        own = self.pieces[index].tokens
        split = len(own)
        if stop <= split:
            return own[start:stop]
        tail = np.asarray(self.output[max(0, start - split) : stop - split], dtype=np.int32)
        return np.concatenate((own[start:split], tail)) if start < split else tail

    def named_blocks(self, index: int, block_size: int) -> int:
        """Number of blocks of a piece that have keys: full ones, and the last if it is closed."""
        size = self.size(index)
        return -(-size // block_size) if self.pieces[index].closed else size // block_size

    def key(self, index: int, block: int, block_size: int) -> bytes:
        """Key of a named block of a piece; computed once."""
        self._name(index, block + 1, block_size)
        return self.pieces[index].keys[block]

    def keys(self, index: int, count: int, block_size: int) -> list[bytes]:
        """Keys of the first `count` named blocks of a piece."""
        self._name(index, count, block_size)
        return self.pieces[index].keys[:count]

    def name_spans(self, block_size: int) -> None:
        """Compute the keys of all independent spans."""
        self._find_roots(len(self.pieces) - 1, block_size)

    def own(self, chains: Collection[int], owner: bytes) -> None:
        """Make some chains a tenant's own: they, and what comes after them, have other keys.

        chains: their numbers; 0 is the prompt itself.
        """
        for piece in self.pieces:
            if piece.chain in chains:
                piece.owner = owner
            if piece.chain in chains or piece.chain == 0:
                # Not cleared: others may have the same list (see Chain.names).
                piece.keys, piece.root = [], None

    def _name(self, index: int, count: int, block_size: int) -> None:
        """Compute the keys of the first `count` named blocks of a piece, unless they are known."""
        piece = self.pieces[index]
        if len(piece.keys) >= count:
            return
        if piece.root is None:
            self._find_roots(index, block_size)
        stop = min(count * block_size, self.size(index))
        tokens = self.tokens(index, len(piece.keys) * block_size, stop)
        piece.keys += chain_keys(tokens, block_size, piece.last_key)

    def _find_roots(self, index: int, block_size: int) -> None:
        for i, piece in enumerate(self.pieces[: index + 1]):
            if piece.root is None:
                piece.root = find_root(self.pieces, piece, self.adapter.key)
            if i < index:
                self._name(i, self.named_blocks(i, block_size), block_size)


def servable(request: Request, index: int, block_size: int) -> int:
    """Leading blocks of a piece that a cache may serve: the last token is always computed."""
    if request.pieces[index].closed:
        return request.named_blocks(index, block_size)
    return (request.size(index) - 1) // block_size


def spread(
    request: Request, tokens: int, done: Sequence[int] | None = None
) -> Iterator[tuple[int, int, int]]:
    """(piece, start, stop) of the next tokens to compute, in document order.

    done: tokens of each piece that need not be computed; by default those already computed.
    """
    if len(request.pieces) == 1:
        start = request.pieces[0].done if done is None else done[0]
        stop = min(start + tokens, request.length)
        if stop > start:
            yield 0, start, stop
        return
    for index, piece in enumerate(request.pieces):
        start = piece.done if done is None else done[index]
        stop = min(start + tokens, request.size(index))
        if stop > start:
            yield index, start, stop
            tokens -= stop - start


def filled(
    request: Request, index: int, start: int, stop: int, block_size: int, kept: int | None = None
) -> range:
    """Named blocks of a piece that are full once start..stop are computed; kept: see Work."""
    whole = request.pieces[index].closed and stop == request.size(index)
    end = -(-stop // block_size) if whole else stop // block_size
    return range(start // block_size, end if kept is None else min(end, kept))
