"""Span queries of any nesting attend to what their tree says, whatever the network's positions."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from relquery import span
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.ir.nodes import Generate, Node
from relquery.ir.optimize import optimize
from relquery.model.text.tokenizer import Tokenizer
from relquery.model.torch_runtime import load as module
from relquery.model.torch_runtime.load import TorchModel, prepare
from relquery.spans.bags import order_bags
from relquery.spans.orders import Orders
from relquery.spans.run import run
from tests.model.oracle.architectures import VOCABULARY, build
from tests.model.oracle.dense import masked_logits
from tests.model.oracle.recorded import Recorded, replaced
from tests.spans.reference import Sheet, sheet_of

# Rotary; with a window; learned; ALiBi.
ARCHITECTURES = ["llama", "gemma3", "gpt2", "opt", "bloom", "mpt"]
ALPHABET = "\n\t" + "".join(map(chr, range(32, 127)))
TOKENS = 2  # of an inner answer

_MODELS: dict[str, TorchModel] = {}
_STOCK: dict[str, Any] = {}


def letters() -> Tokenizer:
    """A token a character."""
    assert len(ALPHABET) == VOCABULARY
    vocabulary = {letter: index for index, letter in enumerate(ALPHABET)}
    backend = Backend(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend, {})


def model(name: str) -> TorchModel:
    if name not in _MODELS:
        _MODELS[name] = prepare(build(name), letters(), name)
        _STOCK[name] = build(name)
    return _MODELS[name]


def backend_of(name: str, **limits: Any) -> tuple[EmbeddedBackend, Recorded]:
    """An engine, and its executor, which keeps the logits of each request."""
    loaded = model(name)
    with replaced(module, "TorchExecutor", Recorded):
        backend = EmbeddedBackend(loaded, EngineConfig(**({"cache_tokens": 2048} | limits)))
    return backend, cast(Recorded, backend._executor)


def tokens_of(text: str) -> Any:
    return np.array([ALPHABET.index(letter) for letter in text], np.int32)


class Dense:
    """Greedy answers of the stock network under an explicit mask."""

    def __init__(self, name: str, tokens: int) -> None:
        model(name)
        self._network, self._tokens = _STOCK[name], tokens
        self._known: dict[tuple[str, str], str] = {}

    def __call__(self, sheet: Sheet) -> str:
        """What an inner generation says to a prompt."""
        key = sheet.text, str(sheet.paths)
        if key not in self._known:
            self._known[key], _ = self.generate(sheet, self._tokens)
        return self._known[key]

    def generate(self, sheet: Sheet, tokens: int) -> tuple[str, torch.Tensor]:
        """An answer, and the logits (tokens, vocabulary) that it was drawn from."""
        text, size = sheet.text, len(sheet.text)
        seen = torch.ones(size + tokens, size + tokens, dtype=torch.bool).tril()
        seen[:size, :size] = torch.tensor(sheet.mask())
        drawn = []
        for end in range(size, size + tokens):
            drawn.append(masked_logits(self._network, tokens_of(text), seen[:end, :end])[-1])
            text += ALPHABET[int(drawn[-1].argmax())]
        return text[size:], torch.stack(drawn)


def check(name: str, query: Generate, backend: EmbeddedBackend, executor: Recorded) -> None:
    """The answer, and all that it reads, is what the dense reference says."""
    dense = Dense(name, TOKENS)
    expected, wanted = dense.generate(sheet_of(ordered(query), dense), query.sampling.max_tokens)
    assert run(query, backend).text == expected
    found = torch.stack(executor.logits[max(executor.logits)])  # of the request that came last
    assert (found - wanted).abs().max() <= 1e-4 * max(1.0, float(wanted.abs().max()))


def ordered(query: Generate) -> Generate:
    """The query as written, unless its bags are put into another order."""
    optimized = optimize(query)
    (found,) = order_bags([optimized], Orders())
    return query if found is optimized else cast(Generate, found)


WORDS = st.sampled_from(["AAAA", "bb ", "c\n", " dd", "Why?", "e" * 17, ""])


def joins(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=1, max_size=3)
    return (
        st.builds(span.seq, several)
        | st.builds(span.plus, several)
        | st.builds(span.bag, several, separator=st.sampled_from(["", ", ", ";"]))
        | st.builds(span.prepare, children)
        | st.builds(lambda child: span.generate(child, "?", max_tokens=TOKENS), children)
    )


TREES = st.recursive(WORDS.map(span.user), joins, max_leaves=9)
QUERIES = st.lists(TREES, min_size=1, max_size=3).map(
    lambda parts: span.generate(*parts, "end", max_tokens=3)
)


@given(
    name=st.sampled_from(ARCHITECTURES),
    queries=st.lists(QUERIES, min_size=1, max_size=2),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_a_tree_of_any_nesting_is_answered_as_under_an_explicit_mask(
    name: str, queries: list[Generate], block_size: int
) -> None:
    backend, executor = backend_of(name, block_size=block_size)
    for query in queries:
        check(name, query, backend, executor)
    backend.engine.pool.check()
