"""What adapters add to products with matrices that are joined, as two matrices for each adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relquery.errors import ModelError
from relquery.model.formats.adapter import Floats, Lora

MOST_JOINED = 3
"""Matrices of which a product has the rows: those of queries, keys and values."""
_FILLED = 32  # ranks are filled up with zeros to a multiple of it, as AMX needs


def widest_rank(loras: Sequence[Lora]) -> int:
    """Numbers between the two matrices of any product, at most."""
    ranks = [len(change.first) for lora in loras for change in lora.changes.values()]
    return _filled(MOST_JOINED * max(ranks))


def join_changes(
    loras: Sequence[Lora], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Floats, Floats] | None:
    """Matrices (adapters, rank, inputs) and (adapters, outputs, rank); None if nothing is changed.

    shapes: (outputs, inputs) of each of the joined matrices, by its path. Each has a part of the
    rank of its own. Raises ModelError for an adapter of other sizes.
    """
    changed = [path for path in shapes if any(path in lora.changes for lora in loras)]
    if not changed:
        return None
    deep = max(
        len(lora.changes[path].first) for path in changed for lora in loras if path in lora.changes
    )
    outputs, rank = sum(shape[0] for shape in shapes.values()), _filled(len(changed) * deep)
    first = np.zeros((len(loras), rank, shapes[changed[0]][1]), np.float32)
    second = np.zeros((len(loras), outputs, rank), np.float32)
    row = 0
    for path, shape in shapes.items():
        for number, lora in enumerate(loras):
            if path in lora.changes:
                _check_sizes(lora, path, shape)
                change, at = lora.changes[path], changed.index(path) * deep
                inner = slice(at, at + len(change.first))
                first[number, inner] = change.first
                second[number, row : row + shape[0], inner] = change.second
        row += shape[0]
    return first, second


def _check_sizes(lora: Lora, path: str, shape: tuple[int, ...]) -> None:
    change = lora.changes[path]
    found = (change.second.shape[0], change.first.shape[1])
    if found != shape:
        trained = f", {lora.base}" if lora.base else ""
        raise ModelError(
            f"Adapter '{lora.name}' changes a matrix of {found} numbers at {path}, but the model's "
            f"has {shape}. Use it with the model that it was trained for{trained}."
        )


def _filled(rank: int) -> int:
    return -(-rank // _FILLED) * _FILLED
