"""A model in relquery's own runtime beside the same in transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from relquery.config import EngineConfig
from relquery.engine.executor import SCRATCH, Chunk
from relquery.engine.requests.request import Draw
from relquery.errors import ModelError
from relquery.model.gguf_store import find_gguf
from relquery.model.hub import find_folder
from relquery.model.native_model import NativeModel, open_folder, open_gguf
from relquery.model.text.tokenizer import read_tokenizer
from relquery.model.torch_runtime.load import DTYPES
from relquery.model.torch_runtime.read import read_gguf_network, read_network
from relquery.model.torch_runtime.same import TEXTS

TOKENS = 16


@dataclass(frozen=True, slots=True)
class TextComparison:
    """The results of both for a text.

    off: how far their log-probabilities are apart, relative to their size. same: how many greedy
    tokens are the same before one differs. tokens: how many were compared.
    """

    text: str
    off: float
    same: int
    tokens: int


def compare(spec: str, dtype: str = "float32") -> Iterator[TextComparison]:
    """Compare a model on some texts. Raises ModelError for one that is not computed here."""
    file = find_gguf(spec)
    stock: Any
    if file is None:
        folder = find_folder(spec)
        model = open_folder(folder, spec, dtype, read_tokenizer(folder))
        stock = read_network(folder, spec, DTYPES[dtype])
    else:
        model = open_gguf(file, spec, dtype)
        stock = read_gguf_network(file, DTYPES[dtype])
    stock.eval()
    for text in TEXTS:
        yield TextComparison(text, *_apart(model, stock, model.tokenizer.encode_whole(text)))
    model.close()


@torch.inference_mode()
def _apart(model: NativeModel, stock: Any, ids: Sequence[int]) -> tuple[float, int, int]:
    given = torch.tensor([ids])
    seen = torch.ones_like(given)
    whole = stock.generate(given, attention_mask=seen, do_sample=False, max_new_tokens=TOKENS)
    whole = whole[0].tolist()
    read = whole[:-1]
    expected = stock(torch.tensor([read])).logits[0].double().log_softmax(-1)
    logs = torch.tensor(_logs(model, read)).double()
    own, drawn = logs[len(ids) - 1 :].argmax(-1).tolist(), whole[len(ids) :]
    differs = [token != other for token, other in zip(own, drawn, strict=True)]
    same = differs.index(True) if True in differs else len(differs)
    return float((logs - expected).norm() / expected.norm()), same, len(drawn)


def _logs(model: NativeModel, tokens: Sequence[int]) -> list[tuple[float, ...]]:
    """The log-probabilities of all tokens after each of these."""
    weigh = Draw(allowed=tuple(range(model.vocabulary)), weigh=True)
    executor = model.executor(EngineConfig(), 0, lambda: 0.0)
    logs: list[tuple[float, ...]] = []
    for count in range(1, len(tokens) + 1):
        slots = SCRATCH + np.arange(count)
        chunk = Chunk(0, np.array(tokens[:count], dtype=np.int32), 0, (), slots, weigh)
        (drawn,) = executor.execute([chunk])
        if not isinstance(drawn, tuple):
            raise ModelError(f"Model '{model.name}' computes no finite numbers.")
        logs.append(drawn)
    return logs
