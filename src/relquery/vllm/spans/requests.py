"""Spans in requests, and the copies to be made for them. Of the scheduler."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from relquery.vllm.spans.composite import SPAN, SPANS

Key = bytes


def span_key(salt: str | None, tokens: Sequence[int]) -> Key:
    """A span by its tokens. salt: spans of different salts are not shared."""
    hashed = sha256((salt or "").encode() + b"\0")
    hashed.update(np.asarray(tokens, np.int64).tobytes())
    return hashed.digest()


@dataclass(frozen=True, slots=True)
class Part:
    """A span in a prompt. start, length: in tokens."""

    key: Key
    start: int
    length: int


def is_span(said: Mapping[str, Any]) -> bool:
    """Whether a request's prompt is a span."""
    return bool(said.get(SPAN))


def parts_of(
    said: Mapping[str, Any], salt: str | None, prompt: Sequence[int], block: int
) -> list[Part]:
    """The spans with which a prompt begins. Raises ValueError if what the request says is wrong."""
    lengths = said.get(SPANS)
    if not isinstance(lengths, list) or not lengths:
        raise ValueError(f"{SPANS} must be a list of lengths in tokens")
    parts, start = [], 0
    for length in lengths:
        if type(length) is not int or length < block or length % block:
            raise ValueError(f"{SPANS} has {length!r}; a span has a multiple of {block} tokens")
        parts.append(Part(span_key(salt, prompt[start : start + length]), start, length))
        start += length
    if start >= len(prompt):
        raise ValueError(
            f"the spans have {start} tokens, the prompt {len(prompt)}; more must follow"
        )
    return parts


def salt_of(salt: str | None, parts: Sequence[Part]) -> str:
    """The cache salt of a prompt that begins with spans.

    Its blocks hold other states than a plain prompt's with the same tokens, or one's with spans of
    other lengths.
    """
    return f"{salt or ''}|{SPANS}:{','.join(str(part.length) for part in parts)}"


@dataclass(slots=True)
class Pinned:
    """Spans whose blocks are kept, the least recently used first.

    pool: vLLM's block pool. most: blocks that they may hold together.
    """

    pool: Any
    most: int
    blocks: OrderedDict[Key, list[int]] = field(default_factory=OrderedDict)
    held: int = 0

    def pin(self, key: Key, blocks: list[int]) -> bool:
        """Keep the blocks of a span that has been computed; whether there is room for it."""
        if key in self.blocks:
            self.blocks.move_to_end(key)
            return True
        if len(blocks) > self.most:
            return False
        while self.held + len(blocks) > self.most:
            self._drop(next(iter(self.blocks)))
        self.pool.touch([self.pool.blocks[number] for number in blocks])
        self.blocks[key] = blocks
        self.held += len(blocks)
        return True

    def use(self, key: Key) -> list[int]:
        """The blocks of a span. Raises KeyError."""
        self.blocks.move_to_end(key)
        return self.blocks[key]

    def clear(self) -> None:
        """Let go of all."""
        for key in [*self.blocks]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        blocks = self.blocks.pop(key)
        self.held -= len(blocks)
        # The last ones go first: a prefix is of use without them, and they are not without it.
        self.pool.free_blocks([self.pool.blocks[number] for number in reversed(blocks)])


logger = init_logger(__name__)

_COMPUTED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


@dataclass(slots=True)
class Copies(KVConnectorMetadata):  # type: ignore[misc]
    """The copies that the workers make before a step.

    sources, targets: blocks. by: positions that the keys of each move. failed: blocks that were to
    be copied, whose span is not there.
    """

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Prompt:
    """A prompt that begins with spans. wrong: what is wrong with it, if anything is."""

    parts: list[Part] = field(default_factory=list)
    wrong: str = ""

    @property
    def tokens(self) -> int:
        return sum(part.length for part in self.parts)


@dataclass(slots=True)
class SpanRequests:
    """The open requests that are spans, or that begin with some.

    block: its size in tokens. computing: spans that are being computed, by how many requests.
    spans, prompts: by the ids of requests. copies: what has been noted and not been taken.
    """

    pinned: Pinned
    block: int
    computing: Counter[Key] = field(default_factory=Counter)
    spans: dict[str, Key] = field(default_factory=dict)
    prompts: dict[str, _Prompt] = field(default_factory=dict)
    copies: Copies = field(default_factory=Copies)

    def take_in(self, request: Any) -> None:
        """Read what a new request says of spans. One that has some gets a salt of its own."""
        sampling = request.sampling_params
        said = (sampling.extra_args or {}) if sampling is not None else {}
        salt, prompt = request.cache_salt, request.prompt_token_ids
        if is_span(said) and prompt is not None:
            if not prompt or len(prompt) % self.block:
                logger.warning(
                    "%s is a span of %d tokens, no multiple of %d: it is not kept",
                    request.request_id,
                    len(prompt),
                    self.block,
                )
                return
            key = self.spans[request.request_id] = span_key(salt, prompt)
            self.computing[key] += 1
        elif SPANS in said:
            try:
                parts = parts_of(said, salt, prompt or [], self.block)
            except ValueError as error:
                self.prompts[request.request_id] = _Prompt(wrong=str(error))
                # Blocks that another prompt has computed would hide that something is wrong.
                request.cache_salt = f"{salt or ''}|{request.request_id}"
            else:
                self.prompts[request.request_id] = _Prompt(parts)
                request.cache_salt = salt_of(salt, parts)
            if request.skip_reading_prefix_cache:
                # vLLM would compute the spans as plain text, to know their log-probabilities.
                self.prompts[
                    request.request_id
                ].wrong = (
                    "a prompt with spans has no prompt_logprobs (over HTTP: echo with logprobs)"
                )
                request.skip_reading_prefix_cache = False
                sampling.prompt_logprobs = None
            request.block_hashes.clear()
            request.update_block_hashes()

    def to_load(self, request: Any, computed: int) -> int | None:
        """How many tokens of spans are to be loaded after those that are computed.

        None while a span is being computed. What is wrong or missing counts, too, and fails then.
        """
        prompt = self.prompts.get(request.request_id)
        if prompt is None:
            return 0
        if prompt.wrong:
            return min(self.block, int(request.num_tokens) - 1)
        if self._missing(prompt) & self.computing.keys():
            return None
        return max(0, prompt.tokens - computed)

    def load(self, request: Any, targets: list[int], tokens: int) -> None:
        """Note what is to be copied. targets: the request's blocks. tokens: to load."""
        prompt = self.prompts.get(request.request_id)
        if prompt is None or not tokens:
            return
        if prompt.wrong:
            logger.warning("%s: %s", request.request_id, prompt.wrong)
            self.copies.failed.add(targets[0])
            return
        known = (prompt.tokens - tokens) // self.block
        missing = self._missing(prompt)
        if missing:
            starts = [part.start for part in prompt.parts if part.key in missing]
            logger.warning(
                "%s: the spans at tokens %s were not computed before it, or were dropped",
                request.request_id,
                ", ".join(map(str, starts)),
            )
            self.copies.failed.update(targets[known : prompt.tokens // self.block])
            return
        for part in prompt.parts:
            for index, source in enumerate(self.pinned.use(part.key), part.start // self.block):
                if index >= known:
                    self.copies.sources.append(source)
                    self.copies.targets.append(targets[index])
                    self.copies.by.append(part.start)

    def taken(self) -> Copies:
        """The copies noted since the last call."""
        copies, self.copies = self.copies, Copies()
        return copies

    def end(self, request: Any, held: list[int]) -> None:
        """A request has ended. held: its blocks, which are kept if it was a span."""
        self.prompts.pop(request.request_id, None)
        key = self.spans.pop(request.request_id, None)
        if key is not None:
            self.computing[key] -= 1
            self.computing += Counter()  # drops what is zero
            blocks = held[: request.num_prompt_tokens // self.block]
            if request.status in _COMPUTED and not self.pinned.pin(key, blocks):
                logger.warning(
                    "%s has %d tokens, more than all spans may hold (%d)",
                    request.request_id,
                    request.num_prompt_tokens,
                    self.pinned.most * self.block,
                )

    def _missing(self, prompt: _Prompt) -> set[Key]:
        return {part.key for part in prompt.parts} - self.pinned.blocks.keys()
