"""An encoder in the native runtime."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from relquery._native import Seen, Slice, Store
from relquery.arrays import Float32s, Int64s
from relquery.engine.executor import SCRATCH
from relquery.errors import ModelError
from relquery.model.attention_plan import NO_SHIFT, ROWS
from relquery.model.formats.config import COPIED, read_settings
from relquery.model.formats.safetensors import read_weights
from relquery.model.native_runtime import NOT_ADAPTED, cores
from relquery.model.networks.encoder import EncoderBuilder, read_encoder
from relquery.model.text.tokenizer import Tokenizer, read_tokenizer

_NONE = np.empty(0, dtype=np.int64)
_UNREAD = ("pooler.", "cls.", "head.", "decoder.", "classifier.")
"""Beginnings of weights behind the last states."""


class NativeEncoder:
    """See EncoderNetwork. folder: of the network. name: of the encoder, for messages."""

    tokens_at_once = 2048

    def __init__(self, folder: Path, name: str) -> None:
        settings = read_settings(folder, name)
        shape = read_encoder(settings)
        self.tokenizer: Tokenizer = read_tokenizer(folder)
        weights = self._weights = read_weights(folder)
        try:
            self._net = EncoderBuilder(shape, weights, cores()).build()
        except (ValueError, IndexError) as error:
            raise ModelError(
                f"The weights of encoder '{name}' do not have the sizes that its config.json says: "
                f"{error}. Use the config.json that belongs to them."
            ) from error
        within = shape.names.within
        unread = [each.removeprefix(within) for each in weights.unread]
        if left := [each for each in unread if not each.startswith(_UNREAD)]:
            raise ModelError(
                f"Encoder '{name}' has weights that its network has no place for, such as "
                f"{left[0]}. Use the config.json that belongs to them."
            )
        self.dimensions, self.vocabulary = shape.hidden, shape.vocabulary
        self.context = shape.context
        width = shape.hidden // shape.heads
        self._shapes = [(shape.heads, width, width)] * len(shape.layers)
        self._none, self._turn = Store(self._shapes, 0, 0), threading.Lock()
        kept = {key: settings[key] for key in settings if key not in COPIED}
        self._told = json.dumps(kept, sort_keys=True, default=str)
        if not np.isfinite(self.states([[0]])[0]).all():
            raise ModelError(
                f"Encoder '{name}' computes no finite numbers: its weights are damaged. Download "
                "it again."
            )

    def fingerprint(self, read: Sequence[object]) -> str:
        """Changes with whatever changes the states."""
        whole = hashlib.sha256(repr((self._told, read)).encode())
        whole.update(self.tokenizer.digest() + self._weights.digest())
        return whole.hexdigest()

    def states(self, texts: Sequence[Sequence[int]]) -> list[Float32s]:
        """See EncoderNetwork. Raises ModelError if a file of weights was written into."""
        self._weights.check()
        ends = list(accumulate(map(len, texts), initial=0))
        tokens = np.concatenate([np.array(each, dtype=np.int64) for each in texts])
        positions = np.concatenate([np.arange(len(each)) for each in texts])
        every = np.arange(len(tokens))
        slots, plain = every + SCRATCH, (NOT_ADAPTED,) * 2
        seen = _seen(ends, slots, positions)
        step = Slice(tokens, positions, slots, seen, every, None, *plain)
        own = Store(self._shapes, len(tokens), 0, keeps=False)
        with self._turn:
            self._net.run([step], self._none, own, cores())
            logits = self._net.logits(len(tokens)).view(np.float32).copy()
        self._weights.check()
        return [logits[first:last] for first, last in pairwise(ends)]


def _seen(ends: Sequence[int], slots: Int64s, positions: Int64s) -> Seen:
    """Each token sees all keys of its text. ends: 0, and where each text ends."""
    tasks: list[tuple[int, ...]] = []
    visits: list[tuple[int, ...]] = []
    for begin, end in pairwise(ends):
        for first in range(begin, end, ROWS):
            last = min(first + ROWS, end)
            tasks.append((first, last, len(visits), len(visits) + 1))
            visits.append((0, last - first, begin, end, NO_SHIFT))
    every, nothing = np.arange(len(slots)), np.full(len(slots), -1)
    merged = np.empty((0, 3), dtype=np.int64)
    return Seen(
        slots,
        np.array(tasks),
        np.array(visits),
        every,
        positions,
        nothing,
        nothing,
        positions,
        merged,
        _NONE,
        0,
        _NONE,
        _NONE,
        (),
    )
