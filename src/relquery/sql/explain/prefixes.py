"""How many prompt tokens a cache will serve, counted on the prompts in the order to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from relquery.arrays import Int64s, TokenIds
from relquery.backends.base import Backend
from relquery.errors import RequestError
from relquery.prompt import Prompt, Sampling
from relquery.table.cost.lru import lru_hits
from relquery.table.cost.tokens import Tokens

_COUNTED = 4096  # at most this many prompts are counted; of more, some runs of neighbours
_RUNS = 4
_KEPT = 1024  # prompts of earlier stages that are looked at


@dataclass(frozen=True, slots=True)
class HitRate:
    """The share of prompt tokens that the cache serves. is_sample: whether some were counted."""

    rate: float
    is_sample: bool


@dataclass(slots=True)
class Prefixes:
    """What the prompts of a statement share, stage by stage, if the cache is empty at first."""

    backend: Backend
    _sent: list[TokenIds] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether anything is known about the backend's cache; not of a provider's."""
        return self.backend.block_tokens is not None

    def send(
        self, prompts: Sequence[Prompt], sampling: Sampling, *, is_new: bool = True
    ) -> HitRate | None:
        """What is shared if these are sent next and not refused; None if it is not known.

        is_new: whether all are sent. If not, those that an earlier stage sends do not come again.
        """
        if not prompts:
            return None
        picked, firsts = _picked(len(prompts))
        some = [prompts[at] for at in picked]
        is_sample = len(picked) < len(prompts)
        size = self.backend.block_tokens
        if size is None:
            return None
        new = self._tokens(some)
        if new is None:
            return None
        counts = self.backend.prompt_tokens(some, sampling)
        is_read = np.array(counts or [len(ids) for ids in new]) > 0
        hits = np.zeros(len(new), np.int64)
        hits[is_read] = self._hits(list(compress(new, is_read)), size, is_new=is_new)
        lengths = np.where(is_read, [len(ids) for ids in new], 0)
        counted = np.ones(len(new), np.bool_)
        counted[[at for at in firsts if at < len(new)]] = False  # they have lost their neighbours
        total = int(lengths[counted].sum())
        return HitRate(float(hits[counted].sum()) / total if total else 0.0, is_sample)

    def _hits(self, new: list[TokenIds], size: int, *, is_new: bool) -> Int64s:
        before, cache = self._sent, self.backend.cache_tokens or 0
        if not is_new:
            texts = {ids.tobytes() for ids in new}
            before = [ids for ids in before if ids.tobytes() not in texts]
        self._sent = [*before, *new][-_KEPT:]
        if not size:
            return np.zeros(len(new), np.int64)
        # The last token of a prompt is computed in any case.
        tokens = Tokens.of([ids[:-1] for ids in (*before, *new)])
        return lru_hits(tokens, max(1, cache // size), size)[len(before) :]

    def _tokens(self, prompts: Sequence[Prompt]) -> list[TokenIds] | None:
        """The token ids of prompts, none of those that cannot be rendered; None if one of them has
        spans that are reused by themselves.
        """
        found = []
        for prompt in prompts:
            try:
                runs = self.backend.runs(prompt)
            except RequestError:
                found.append(np.empty(0, np.int32))
                continue
            if runs is None or len(runs) != 1:
                return None
            found.append(runs[0])
        return found


def _picked(count: int) -> tuple[list[int], list[int]]:
    """Which of the prompts are counted, and where runs of them begin that are not the first."""
    if count <= _COUNTED:
        return list(range(count)), []
    length = _COUNTED // _RUNS
    starts = np.linspace(0, count - length, _RUNS).astype(int).tolist()
    places = [at for start in starts for at in range(start, start + length)]
    return places, [run * length for run in range(1, _RUNS)]
