"""A tokenizer with words that the network has no embeddings for: added, and never resized."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

import relquery as rq
from benchmarks.stock import stock_tokenizer
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Finish, Prompt, Reuse, Role, Span

WORD, END = "zorgle", "<|beyond|>"
REFUSED = r"has the token 25\d \('zorgle'\), but the model has embeddings for the tokens 0 to 25\d"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rq.Engine]:
    """Its tokenizer names an end of answers that the network does not know, too."""
    folder: Path = tmp_path_factory.mktemp("models") / "added"
    tokenizer: Any = stock_tokenizer(byte_tokenizer())
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config = LlamaConfig(
        vocab_size=len(tokenizer), num_attention_heads=2, eos_token_id=None, **sizes
    )
    network: Any = LlamaForCausalLM(config)
    network.generation_config.eos_token_id = tokenizer.eos_token_id
    network.save_pretrained(folder)
    tokenizer.add_tokens([WORD])
    tokenizer.add_special_tokens({"eos_token": END})
    tokenizer.save_pretrained(folder)
    with rq.Engine(str(folder)) as opened:
        yield opened


@pytest.mark.parametrize(
    "prompt",
    [
        f"Say {WORD}.",
        (Span(f"Say {WORD}.", Role.SYSTEM), Span("Hm.")),
        (Span(WORD, Role.NONE, Reuse.INDEPENDENT), Span("Hm.", Role.NONE)),
    ],
)
def test_a_prompt_with_such_a_word_is_refused_alone(engine: rq.Engine, prompt: Prompt) -> None:
    refused, other = engine.submit([prompt, "Say it."], max_tokens=4).result()
    assert refused.finish is Finish.ERROR
    assert re.search(REFUSED, refused.error or "")
    assert other.text is not None


def test_such_words_in_labels_are_refused_and_in_schemas_spelt(engine: rq.Engine) -> None:
    with pytest.raises(rq.RelqueryError, match="embeddings for"):
        engine.submit(["Say it."], labels=["yes", WORD]).result()
    schema = f'{{"enum": ["{WORD}"]}}'
    (answer,) = engine.submit(["Say it."], schema=schema, max_tokens=20).result()
    assert answer.text == f'"{WORD}"'


def test_an_end_that_is_never_drawn_ends_nothing(engine: rq.Engine) -> None:
    labels = ["Yes", "Yes, but"]
    (chosen,) = engine.submit(["Say it."], labels=labels).result()
    assert chosen.text in labels
    (scores,) = engine.score(["Say it."], labels)
    assert sum(scores.probabilities.values()) == pytest.approx(1)
    (told,) = engine.submit(["Say it."], logprobs=2, max_tokens=3).result()
    assert told.logprobs is not None
