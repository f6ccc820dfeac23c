"""A budget of memory is shared out, and kept: the longest prompt is served within it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stock import stock_tokenizer
from relquery.backends.local.open import load_backend
from relquery.backends.local.service import Engine
from relquery.backends.local.sizing import (
    CACHE_SHARE,
    LABEL_TOKENS,
    RESERVE,
    Sizing,
    read_memory,
    share_out,
    slices_for,
)
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, Drawn
from relquery.errors import ConfigError
from relquery.model.footprint import Footprint
from relquery.model.native_runtime import NativeExecutor
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Finish
from tests.cases import cases

MODEL = "random:layers=6,hidden=32,heads=4,kv_heads=2,ffn=64,context=20000"
BUDGET: dict[str, Any] = {
    "memory": "2MB",
    "max_input": "auto",
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
    "cost": LinearCost(),
}
CONFIG = EngineConfig()


class Linear:
    """A model of which every byte is known."""

    is_fast = True
    weights = 1_000_000
    cached_token = 200
    hidden_token = 1
    context = 50_000

    def one_prompt(self, tokens: int, slice_tokens: int) -> int:
        return 100 * min(tokens, slice_tokens) + 20 * tokens

    def many_prompts(self, tokens: int, prompts: int, slice_tokens: int) -> int:
        return self.one_prompt(tokens, slice_tokens) + 10 * prompts


LINEAR = cast(Footprint, Linear())


def share(memory: int, max_input: Any = "auto", **config: Any) -> Sizing:
    return share_out(memory, LINEAR, EngineConfig(**config), max_input, "cache_tokens" in config)


def test_memory_is_bytes_or_a_text_with_a_unit() -> None:
    for memory, size in cases(__file__, "memory"):
        assert read_memory(memory) == size
    others: list[Any] = [0, -1, True, "", "GB", "2 GBit", "1.2.3MB", "0MB", None, 2.5]
    for other in others:
        with pytest.raises(ConfigError, match=r"memory is .* Give bytes, or a text such as '2GiB'"):
            read_memory(other)


@given(memory=st.integers(1_500_000, 100_000_000))
def test_weights_step_and_cache_fit_into_the_memory_and_nearly_fill_it(memory: int) -> None:
    sizing = share(memory)
    config, block = sizing.config, CONFIG.block_size * Linear.cached_token
    counted = int((1 - RESERVE) * memory)
    assert counted - block <= sizing.weights + sizing.step + sizing.cache <= counted
    assert config.cache_tokens % config.block_size == 0
    assert sizing.cache == config.cache_tokens * Linear.cached_token
    assert config.max_input == sizing.max_input <= Linear.context - LABEL_TOKENS
    longest = sizing.max_input + LABEL_TOKENS
    assert sizing.step >= LINEAR.one_prompt(longest, config.slice_tokens)
    # Where any input may be as long, the cache keeps its share.
    assert sizing.cache + block >= CACHE_SHARE * (counted - Linear.weights)


def test_a_given_length_leaves_the_cache_the_rest_and_a_given_cache_is_kept() -> None:
    short, long = share(3_000_000, 10_000), share(3_000_000, 45_000)
    assert (short.max_input, long.max_input) == (10_000, 45_000)
    assert short.cache - long.cache == pytest.approx(35_000 * 20, abs=16 * 200)
    sizing = share(3_000_000, cache_tokens=4_096)
    assert sizing.config.cache_tokens == 4_096
    assert sizing.weights + sizing.step + sizing.cache <= 3_000_000


def test_what_bounds_the_longest_is_told() -> None:
    sizing = share(3_000_000, None)  # no step is longer than any
    assert sizing.config.max_input is None
    assert sizing.max_input == sizing.config.cache_tokens - 1
    assert "what the cache holds of a prompt that is computed in chunks" in str(sizing)
    short = share(3_000_000, 10)
    assert short.config.max_input == 10
    assert short.max_input == short.config.cache_tokens - 1, "longer ones are computed in chunks"
    assert "computed in chunks" in str(short)
    assert "45,000 tokens, as max_input says" in str(share(3_000_000, 45_000))


def test_no_input_is_longer_than_the_context_or_than_memory_holds() -> None:
    sizing = share(100_000_000)
    assert sizing.max_input == Linear.context - LABEL_TOKENS
    assert "the model's context" in str(sizing)
    assert "what memory holds" in str(share(1_500_000))


def test_the_longest_that_a_refusal_names_is_accepted_and_no_longer_one() -> None:
    for memory in (1_300_000, 1_500_000, 1_900_000):
        said = r"max_input is 49,999; .* tokens fit at most"
        with pytest.raises(ConfigError, match=said) as refused:
            share(memory, 49_999)
        named = str(refused.value).split(" tokens fit at most")[0].split()[-1]
        longest = int(named.replace(",", ""))
        assert share(memory, longest).max_input == longest
        with pytest.raises(ConfigError, match="fit at most"):
            share(memory, longest + 1)


def test_a_memory_without_room_for_weights_or_a_step_is_refused_with_what_it_needs() -> None:
    for memory in (1, 900_000, 1_000_000):
        with pytest.raises(ConfigError, match="the weights alone take"):
            share(memory)
    with pytest.raises(ConfigError, match=r"a step and the cache need .* Raise memory"):
        share(1_041_000)


def test_slices_are_smaller_in_less_memory_and_never_larger_than_said() -> None:
    sizes = [slices_for(free, LINEAR, CONFIG) for free in (5 * 10**4, 15 * 10**4, 3 * 10**5, 10**7)]
    assert sizes == [128, 256, 512, 1024]
    assert slices_for(10**7, LINEAR, EngineConfig(slice_tokens=300)) == 300


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(MODEL, device="cpu", **BUDGET) as engine:
        yield engine


def prompt(engine: Engine, tokens: int) -> str:
    """A text that is so many tokens once it is rendered: a byte is one."""
    (known,) = engine.submit(["?"], max_tokens=1).result()
    return "x" * (tokens - known.prompt_tokens + 1)


def test_the_longest_prompt_is_served_in_a_step_that_takes_what_was_foretold(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    execute = NativeExecutor.execute

    def tracked(self: NativeExecutor, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        taken.append(self.bytes_of(chunks))
        return execute(self, chunks)

    sizing = cast(Sizing, engine.sizing)
    text = prompt(engine, sizing.max_input)
    monkeypatch.setattr(NativeExecutor, "execute", tracked)
    (answer,) = engine.submit([text], labels=["Yes", "No"]).result()
    assert answer.error is None
    assert answer.prompt_tokens == sizing.max_input > 2 * sizing.config.cache_tokens
    (step,) = taken
    assert 0.5 * sizing.step <= step <= 1.02 * sizing.step
    assert sizing.weights + sizing.cache + step <= 1.02 * sizing.memory


@pytest.mark.parametrize("has_experts", [False, True])
def test_a_process_never_takes_more_than_its_memory(has_experts: bool, tmp_path: Path) -> None:
    """Loading, the longest prompt and the cache included, and closing gives it back."""
    if has_experts:
        save_experts(tmp_path)
    model = str(tmp_path) if has_experts else "random:layers=4,hidden=512"
    command = [sys.executable, "-c", RESIDENT, model]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["peak"] <= found["memory"]
    assert found["closed"] <= 0.1 * found["memory"]


def save_experts(folder: Path) -> None:
    """A model of many small matrices."""
    made = pytest.importorskip("tests.model.oracle.architectures", reason="needs torch").made
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    sizes |= {"num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 512}
    sizes |= {"num_experts": 8, "num_experts_per_tok": 4, "moe_intermediate_size": 128}
    sizes |= {"max_position_embeddings": 65_536, "vocab_size": 16_384}
    made("Qwen3Moe", sizes, tie_word_embeddings=True)().save_pretrained(folder)
    stock_tokenizer(byte_tokenizer()).save_pretrained(folder)


RESIDENT = """
import json, pathlib, sys
from relquery import Engine
from relquery.backends.local.open import load_backend
import relquery.model.load

def kib(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))

load_backend("random:layers=1,hidden=64").close()  # all is imported
before, memory = kib("VmRSS"), 150 * 2**20
with Engine(sys.argv[1], device="cpu", memory=memory, max_input="auto") as engine:
    text = "x" * (engine.sizing.max_input - 40)
    (answer,) = engine.submit([text], labels=["Yes", "No"]).result()
    assert answer.error is None, answer
    labels = [f"{first}{second}" for first in "abcdefg" for second in "abcdefg"]
    scored = engine.score([f"{n} {text[:9]}" for n in range(60)], labels=labels)
    assert not any(each.error for each in scored), scored
    answers = engine.submit([f"{n} {text[:50]}" for n in range(400)], max_tokens=9).result()
    assert all(each.text is not None for each in answers), answers
peak = kib("VmHWM") - before
print(json.dumps({"peak": peak << 10, "memory": memory, "closed": kib("VmRSS") - before << 10}))
"""


def test_one_token_more_is_refused_at_once_with_the_longest(engine: Engine) -> None:
    sizing = cast(Sizing, engine.sizing)
    text = prompt(engine, sizing.max_input + 1)
    (answer,) = engine.submit([text], labels=["Yes", "No"]).result()
    assert answer.finish is Finish.ERROR
    assert f"{sizing.max_input + 1} tokens" in str(answer.error)
    assert f"a step has room for {sizing.max_input} " in str(answer.error)


@pytest.mark.parametrize(
    "given", [{"memory": "8MB"}, {"memory": "2MB", "context": 20_000}, {"max_input": None}]
)
def test_the_longest_prompt_may_be_scored_with_labels_of_some_tokens(given: dict[str, Any]) -> None:
    given = {"memory": "8MB", "max_input": "auto", "context": 300} | given
    model = f"random:layers=6,hidden=32,heads=4,kv_heads=2,ffn=64,context={given.pop('context')}"
    labels = ["Yes", "N" + "o" * LABEL_TOKENS]
    with Engine(model, device="cpu", **BUDGET | given) as engine:
        sizing = cast(Sizing, engine.sizing)
        text = prompt(engine, sizing.max_input)
        (scores,) = engine.score([text], labels)
        assert scores.error is None
        assert scores.prompt_tokens == sizing.max_input
        (scores,) = engine.score([text], [*labels, labels[1] + "o"])
        in_context = "the model's context but for 16 of labels" in str(sizing)
        assert ("the labels takes 17 more" in str(scores.error)) == in_context


def test_what_no_memory_holds_is_refused_at_once() -> None:
    many: dict[str, Any] = {"memory": "48MiB", "max_num_batched_tokens": 10**9}
    for options, said in (
        ({"max_input": "auto", "memory": "99999GiB"}, "memory is 99999.00 GiB, but this machine"),
        (many, r"max_num_batched_tokens is 1,000,000,000; .* Lower max_num"),
        ({"cache_tokens": 10**12}, r"cache_tokens is 1,000,000,000,000, which take"),
        (BUDGET | {"memory": "100kB"}, "the weights alone take"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_backend(MODEL, device="cpu", **options)
