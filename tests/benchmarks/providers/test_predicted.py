"""The predicted USD of `scripts/bench providers`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.providers.parts.predicted import WIRES, predict
from benchmarks.providers.standin.tokens import pieces


@pytest.mark.parametrize(("model", "options"), WIRES, ids=[model for model, _ in WIRES])
def test_what_is_foretold_after_a_preview_is_billed(model: str, options: dict[str, str]) -> None:
    texts = [f"Row {row}: " + "extraordinarily long-winded words of it. " * 5 for row in range(60)]
    found = predict("t", pa.table({"text": texts}), model, pieces, **options)
    assert found.calls >= 60
    assert found.error < 0.1
    assert found.billed < found.all
