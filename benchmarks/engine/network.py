"""The network of both sides: a Llama with random weights, in a folder that any engine can load."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.engine.sizes import Sizes
from benchmarks.sql.queries import FILE, FILTER
from benchmarks.stock import stock_tokenizer

CONTEXT = 16_384


def make_network(folder: Path, sizes: Sizes, data: Path, seed: int) -> None:
    """Save a network and a tokenizer, which is trained on Movies if the table is there."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from relquery.model.networks.random import train_tokenizer

    path = data / FILE
    rows = pq.read_table(path).slice(0, 3_000).to_pylist() if path.exists() else []
    texts = [" ".join(map(str, row.values())) for row in rows]
    tokenizer = train_tokenizer(texts or ["A text, and another text."], sizes.vocabulary)
    torch.manual_seed(seed)
    config: Any = LlamaConfig(
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=CONTEXT,
        vocab_size=sizes.vocabulary,
        bos_token_id=None,
        eos_token_id=tokenizer.id_of("eos_token"),
        tie_word_embeddings=False,
    )
    network: Any = LlamaForCausalLM(config)
    network.save_pretrained(folder)
    stock_tokenizer(tokenizer).save_pretrained(folder)


def filter_prompts(folder: Path, data: Path, count: int) -> dict[str, list[list[int]]]:
    """The token ids of the filter's prompts over Movies, by order: ours, and the table's.

    They are taken from queries on a tiny network with the same tokenizer.
    """
    from transformers import AutoTokenizer

    from relquery.backends.local.embedded import EmbeddedBackend
    from relquery.config import EngineConfig, Order
    from relquery.connection import connect
    from relquery.errors import PartialResultWarning
    from relquery.model.load import load

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tiny = load("random:layers=1,hidden=16,heads=1", tokenizer=tokenizer)
    movies = pq.read_table(data / FILE).slice(0, count)
    orders: dict[str, Order] = {"ours": "tree", "table": "original"}
    prompts: dict[str, list[list[int]]] = {}
    for name, order in orders.items():
        backend = EmbeddedBackend(tiny, EngineConfig())
        listed = prompts.setdefault(name, [])
        backend.engine.submit = partial(_record, listed, backend.engine.submit)  # type: ignore
        connection = connect(backend, order=order, form="json", ledger=None)
        connection.register("movies", movies)
        with warnings.catch_warnings():  # a random network answers with no label
            warnings.simplefilter("ignore", PartialResultWarning)
            connection.sql(FILTER, max_tokens=1)
        connection.close()
    return prompts


def _record(listed: list[list[int]], submit: Any, request: Any, *rest: Any) -> Any:
    listed.append([int(token) for piece in request.pieces for token in piece.tokens])
    return submit(request, *rest)
