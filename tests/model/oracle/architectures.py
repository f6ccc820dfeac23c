"""Tiny networks of the architectures that must work, and engines on them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import transformers as tf

from relquery.arrays import TokenIds
from relquery.config import EngineConfig
from relquery.engine.executor import RealClock
from relquery.engine.loop import Loop
from relquery.engine.requests.pieces import Placing
from relquery.engine.requests.request import Request
from relquery.model.native_model import NativeModel, open_folder
from relquery.model.native_runtime import NativeExecutor
from relquery.model.networks.random import byte_tokenizer
from relquery.model.served import ServedModel
from relquery.model.text.tokenizer import Tokenizer
from relquery.model.torch_runtime.attention import PackedBatch
from relquery.model.torch_runtime.executor import TorchExecutor
from relquery.model.torch_runtime.load import TorchModel, prepare

_TABLES = tomllib.loads(Path(__file__).with_name("networks.toml").read_text())
VOCABULARY, CONTEXT = 97, 256


def made(kind: str, *settings: dict[str, Any], **more: Any) -> Callable[[], Any]:
    """Builds a network of transformers. kind: its class is `{kind}ForCausalLM`."""
    given = {key: value for each in (*settings, more) for key, value in each.items()}
    of = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
    config = f"{kind}TextConfig" if hasattr(tf, f"{kind}TextConfig") else f"{kind}Config"
    return lambda: getattr(tf, of)(getattr(tf, config)(**given))


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """With the sizes that they begin with."""
    own = dict(given)
    sizes = own.pop("of", None)
    return own if sizes is None else _settings(_TABLES["sizes"][sizes]) | own


def networks_of(group: str) -> dict[str, Callable[[], Any]]:
    """By name, the networks of a table of the file."""
    settings = {name: _settings(one) for name, one in _TABLES[group].items()}
    for one in settings.values():
        one.pop("why", None)
    return {name: made(**one) for name, one in settings.items()}


LLAMA_LIKE = _settings(_TABLES["sizes"]["llama"])
NETWORKS, ALIBI, FALCON = map(networks_of, ("networks", "alibi", "falcon"))
ALL = NETWORKS | ALIBI | FALCON | networks_of("rotary")
NATIVE = networks_of("native")
WHY_REFUSED: dict[str, str] = {name: one["why"] for name, one in _TABLES["refused"].items()}


def quick_of(names: Iterable[str], *quick: str) -> pytest.MarkDecorator:
    """Runs a test for each of these names; those that are not named to be quick are long."""
    long = (pytest.param(name, marks=pytest.mark.long) for name in sorted({*names} - {*quick}))
    return pytest.mark.parametrize("name", [*quick, *long])


NO_TOKENIZER = Tokenizer(byte_tokenizer().backend, {})
"""Where prompts are token ids already."""


def prepared(network: Any, name: str = "tiny") -> TorchModel:
    """A network on our attention."""
    return prepare(network, NO_TOKENIZER, name)


@cache
def model_of(name: str, runtime: str = "torch") -> tuple[Any, Any]:
    """A network on our attention or in the native runtime, and the stock one; those of one name are
    the same."""
    network = build(name)
    return (native(network, name) if runtime == "native" else prepared(network, name)), build(name)


def native(
    network: Any,
    name: str = "tiny",
    dtype: str = "float32",
    tokenizer: Tokenizer = NO_TOKENIZER,
) -> NativeModel:
    """A network in the native runtime."""
    with TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        return open_folder(Path(folder), name, dtype, tokenizer)


def build(name: str) -> Any:
    """A seeded network whose own generation never ends early."""
    network = larger((ALL | NATIVE)[name])
    network.generation_config.eos_token_id = None
    return network


def larger(make: Callable[[], Any], by: float = 4, seed: int = 0) -> Any:
    """A seeded network with weights so large that greedy choices differ from token to token."""
    torch.manual_seed(seed)
    network = make().eval()
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(by)
    return network


def varied(make: Callable[[], Any]) -> Any:
    """A seeded network with weights larger than at the start of a training, so that a mistake
    shows, and norms that are not all 1."""
    torch.manual_seed(0)
    network = make().eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(torch.rand_like(weight) + 0.5 if "norm" in name else 3 * weight)
            if name.endswith("bias"):
                weight.normal_()
    return network


def prompts_with_shared_prefixes(count: int, seed: int = 0) -> list[TokenIds]:
    """Random prompts of 2 to 70 tokens that begin with parts of one common text."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(3, VOCABULARY, 40)
    return [
        np.concatenate(
            (shared[: rng.integers(1, 41)], rng.integers(3, VOCABULARY, rng.integers(1, 31)))
        ).astype(np.int32)
        for _ in range(count)
    ]


@torch.inference_mode()
def generated(network: Any, prompt: TokenIds, tokens: int) -> list[int]:
    """What `transformers` itself generates, one request at a time."""
    ids = torch.from_numpy(prompt).long()[None]
    output = network.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False
    )
    return list(output[0, len(prompt) :].tolist())


def engine_of(model: Any, kind: Any = TorchExecutor, **limits: Any) -> Loop:
    """An engine on a prepared network. kind: of its executor. limits: see EngineConfig."""
    config = EngineConfig(**({"cache_tokens": 4096} | limits))
    if isinstance(model, NativeModel):
        slots = config.cache_tokens // config.block_size * config.block_size
        made = NativeExecutor if kind is TorchExecutor else kind
        with patch("relquery.model.native_model.NativeExecutor", made):
            executor = model.executor(config, slots, lambda: 0.0)
        return Loop(executor, config, RealClock())
    executor = kind(
        model.forward,
        config.cache_tokens // config.block_size * config.block_size,
        config.segment_sharing,
        model.positions,
        config.slice_tokens,
    )
    return Loop(executor, config, RealClock())


def placing_of(model: Any) -> Placing:
    """How the requests of an engine on this network stand at their positions."""
    return "chain" if model.is_relocatable else "bound"


def finished(engine: Loop, requests: Iterable[Request]) -> Iterator[Request]:
    """Submit and run; the pools must be in order after every step."""
    for request in requests:
        engine.submit(request)
    while engine.waiting or engine.running:
        yield from engine.step()
        engine.pool.check()


def answers(
    model: ServedModel,
    prompts: Sequence[TokenIds],
    tokens: int,
    order: Sequence[int] | None = None,
    **limits: Any,
) -> list[list[int]]:
    """Greedy outputs by prompt, submitted in `order`."""
    requests = [Request(i, prompts[i], tokens) for i in order or range(len(prompts))]
    outputs = {
        request.id: request.output for request in finished(engine_of(model, **limits), requests)
    }
    return [outputs[i] for i in range(len(prompts))]


@contextmanager
def failing_second_layer() -> Iterator[None]:
    """A second layer that stores its keys and is then interrupted."""
    attend = PackedBatch.attend

    def interrupt(batch: PackedBatch, layer: int, *args: Any, **options: Any) -> Any:
        if layer == 1:
            raise KeyboardInterrupt
        return attend(batch, layer, *args, **options)

    with patch.object(PackedBatch, "attend", interrupt):
        yield
