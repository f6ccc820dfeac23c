"""All prompts of a stage as thin bars in the order sent: reused, computed, decoded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relquery.arrays import Floats
from relquery.sql.record import StageRecord

_BARS = 600  # more could not be told apart
_HEIGHT = 100


def bars(record: StageRecord) -> str:
    """A picture and a line about it. If there are very many prompts, several share a bar."""
    rows = np.array(record.counts, np.float64).reshape(-1, 3)
    if not len(rows):
        return ""
    prompt, cached, decoded = rows.T
    parts = np.stack([cached, np.maximum(prompt - cached, 0), decoded])
    each = -(-parts.shape[1] // _BARS)
    starts = np.arange(0, parts.shape[1], each)
    sizes = np.diff([*starts, parts.shape[1]])
    means = np.add.reduceat(parts, starts, axis=1) / sizes
    top = float(means.sum(axis=0).max()) or 1.0
    paths = "".join(
        f'<path class="{name}" d="{"".join(_path(means, part, top))}"/>'
        for part, name in enumerate(("reused", "computed", "decoded"))
    )
    what = "a prompt" if each == 1 else f"the mean of {each:,} prompts"
    return (
        f'<svg class="bars" viewBox="0 0 {len(starts)} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="Tokens of each prompt">{paths}</svg>'
        f'<p class="small">Each bar is {what}, in the order sent. The tallest has {top:,.0f} '
        "tokens.</p>"
    )


def _path(means: Floats, part: int, top: float) -> Iterator[str]:
    """The rectangles of one part, on top of those of the parts before."""
    below = means[:part].sum(axis=0)
    for at, (base, height) in enumerate(zip(below, means[part], strict=True)):
        if height > 0:
            y, size = _HEIGHT * (1 - base / top), _HEIGHT * height / top
            yield f"M{at} {y:.1f}h1v{-size:.1f}h-1z"
