"""Requests as far as the plug-in reads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class RequestStatus(IntEnum):
    WAITING = 1
    WAITING_FOR_GRAMMAR = 2
    RUNNING = 3
    PREEMPTED = 4
    FINISHED_STOPPED = 5
    FINISHED_ABORTED = 6
    FINISHED_LENGTH_CAPPED = 7
    FINISHED_ERROR = 8


@dataclass
class SamplingParams:
    extra_args: dict[str, Any] | None = None
    prompt_logprobs: int | None = None


@dataclass(eq=False)
class Request:
    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    block_size: int
    extra_args: dict[str, Any] | None = None
    cache_salt: str | None = None
    status: RequestStatus = RequestStatus.WAITING
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    num_in_flight_tokens: int = 0
    client_index: int = 0
    skip_reading_prefix_cache: bool = False
    block_hashes: list[bytes] = field(default_factory=list)
    _output_token_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sampling_params = SamplingParams(self.extra_args)
        self.num_prompt_tokens = len(self.prompt_token_ids)
        self.update_block_hashes()

    @property
    def num_output_tokens(self) -> int:
        return len(self._output_token_ids)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    def update_block_hashes(self) -> None:
        tokens, size = [*self.prompt_token_ids, *self._output_token_ids], self.block_size
        for end in range((len(self.block_hashes) + 1) * size, len(tokens) + 1, size):
            before = self.block_hashes[-1] if self.block_hashes else repr(self.cache_salt).encode()
            own = repr(tokens[end - size : end]).encode()
            self.block_hashes.append(hashlib.sha256(before + own).digest())
