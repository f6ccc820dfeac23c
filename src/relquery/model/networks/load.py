"""Loading a network and its tokenizer: from a folder, by name, or with random weights."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from relquery.config import EngineConfig
from relquery.engine.executor import Chunk
from relquery.errors import ModelError, RelqueryError, UnsupportedNetworkError, unknown, warn
from relquery.model import torch_executor
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.function import NAME
from relquery.model.cache.device import KVCache
from relquery.model.cache.rotary import PositionScheme
from relquery.model.forward.linear import pack_all
from relquery.model.forward.llama import LlamaForward, why_not_ours
from relquery.model.forward.stock import Forward, StockForward
from relquery.model.networks.adapters.adapt import adapt
from relquery.model.networks.findings import Findings, keep, last_calls, name_of, recall
from relquery.model.networks.fingerprint import fingerprint
from relquery.model.networks.positions import probe_positions
from relquery.model.networks.random import RandomSpec, build_network, byte_tokenizer
from relquery.model.networks.read import read_network, read_tokenizer
from relquery.model.networks.same import (
    Probe,
    check_same,
    distance,
    not_finite,
    own_logits,
    rounding,
)
from relquery.model.slices.allocator import keep_freed_memory
from relquery.model.slices.release import NOTHING, Release
from relquery.model.tokenizer import check_tokenizer

_LOG = logging.getLogger(__name__)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A network with our attention function, its tokenizer, and what must be known about them.

    context: positions that the network has, in tokens. end: ids that end an answer.
    positions: how its keys carry their position. release: tensors that its runs can free early.
    version: changes with the weights, the configuration, the vocabulary or the chat template.
    why_stock: why the forward pass is that of `transformers`; "" if it is ours.
    """

    name: str
    forward: Forward
    tokenizer: PreTrainedTokenizerBase
    context: int
    end: frozenset[int]
    positions: PositionScheme
    release: Release = NOTHING
    version: str = ""
    why_stock: str = ""

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, for people."""
        if not self.why_stock:
            return "relquery's forward pass"
        return f"transformers' forward pass: {self.why_stock}"

    @property
    def network(self) -> PreTrainedModel:
        """The network, with our attention function."""
        return self.forward.network

    @property
    def vocabulary(self) -> int:
        """Token ids that the network reads are below it."""
        return _embeddings(self.network)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights and the states."""
        return self.network.dtype

    @property
    def is_relocatable(self) -> bool:
        """See PositionScheme."""
        return self.positions.relocatable

    @property
    def is_simulated(self) -> bool:
        """No."""
        return False

    @property
    def length(self) -> None:
        """The network says where an answer ends."""
        return None

    def fingerprint(self) -> str:
        """By all of its weights, wherever they lie."""
        return f"sha256:{fingerprint(self)}"

    def executor(
        self, config: EngineConfig, slots: int, since: Callable[[], float], *, lean: bool
    ) -> torch_executor.TorchExecutor:
        """See ServedModel."""
        del since
        return torch_executor.TorchExecutor(
            self.forward,
            slots,
            config.segment_sharing,
            self.positions,
            config.relocation,
            config.slice_tokens,
            self.release,
            config.host_tokens // config.block_size * config.block_size,
            lean=lean,
        )


def load(
    spec: str,
    *,
    dtype: str | None = None,
    device: str | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> LoadedModel:
    """Load a model.

    spec: a Hugging Face name, a folder, or "random:layers=8,hidden=256,..." (see RandomSpec).
    dtype: default float32 on CPU, bfloat16 on CUDA. device: default CUDA if there is one.
    tokenizer: replaces the model's own. Raises ModelError.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    _check_device(device)
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    dtype = dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelError(unknown("dtype", dtype, DTYPES))
    keep_freed_memory()
    if spec.startswith("random:"):
        tokenizer = tokenizer or byte_tokenizer()
        network = build_network(RandomSpec.parse(spec), tokenizer, DTYPES[dtype])
    else:
        tokenizer = tokenizer or read_tokenizer(spec)
        network = read_network(spec, DTYPES[dtype])
    network = cast(PreTrainedModel, cast(Any, network).to(device))
    version = _version(network, tokenizer)
    return replace(prepare(network, tokenizer, spec, known=True), version=version)


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type if isinstance(device, str) else ""
    except RuntimeError:
        kind = ""
    if not kind:
        raise ModelError(f"device is {device!r}; give 'cpu', 'cuda' or 'cuda:1'.")
    if kind == "meta":
        raise ModelError("device is 'meta', which computes nothing; give 'cpu' or 'cuda'.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            f"device is '{device}', and this machine has no GPU that torch can use. Use 'cpu'."
        )


def prepare(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, *, known: bool = False
) -> LoadedModel:
    """Give a network our attention function and check that it is called. Raises ModelError.

    known: whether the network's code is what its configuration says, so that findings about such
    a network are used again and kept.
    """
    network.train(False)
    try:
        prepared = _prepare(network, tokenizer, known)
    except UnsupportedNetworkError as error:
        raise _refused(name, str(error)) from error
    except RelqueryError:
        raise
    except Exception as error:  # the code of a network may fail in any way
        why = f"its code does not run with the engine's attention function ({error})."
        raise _refused(name, why) from error
    end, context = _end_tokens(network, tokenizer), _context(network) or 2**31
    return LoadedModel(
        name,
        prepared.forward,
        tokenizer,
        context,
        end,
        prepared.positions,
        prepared.release,
        why_stock=prepared.why_stock,
    )


def _refused(name: str, why: str) -> ModelError:
    return ModelError(
        f"Model '{name}' cannot run on the local engine: {why} Run it on a server such as vLLM "
        "instead, and give model='openai:NAME' and base_url='http://localhost:8000/v1'."
    )


class _Prepared(NamedTuple):
    """The fastest forward pass that computes what a network computes. For the fields see
    LoadedModel."""

    forward: Forward
    release: Release
    positions: PositionScheme
    why_stock: str


def _prepare(network: PreTrainedModel, tokenizer: object, known: bool) -> _Prepared:
    """Check a network, pack its weights, and choose its forward pass."""
    name = name_of(network) if known else None
    found = recall(name) if name else None
    probes = own_logits(network, tokenizer) if found is None else []
    if not all(probe.whole.isfinite().all() for probe in probes):
        raise not_finite(network)
    if not adapt(network):
        network.set_attn_implementation(NAME)
    context = _context(network)
    if found is None:
        _check_attention(network)
        layers = last_calls(check_same(network, probes, context))
    else:
        layers = found.layers
    positions = probe_positions(network, context)
    objection = why_not_ours(network)
    why_stock = objection if found is None else found.why_stock
    ours = None if why_stock else LlamaForward(network, layers)
    if ours is not None and probes:
        why_stock = _differs(ours, probes)
    if name and found is None:
        keep(name, Findings(layers, why_stock))
    if ours is not None and not why_stock:
        return _Prepared(ours, NOTHING, positions, "")
    if not objection:
        warn(f"{why_stock} It runs in transformers' forward pass, which is slower.")
    pack_all(network)
    return _Prepared(
        StockForward(network), torch_executor.probe_release(network), positions, why_stock
    )


def _differs(ours: Forward, probes: Sequence[Probe]) -> str:
    """Why our forward pass may not be used: how far it is from the network's own; "" if it may."""
    apart, most = distance(ours, probes), rounding(ours.network, probes)
    if apart <= most:
        return ""
    return (
        f"relquery's own forward pass gives other logits than the network's: off by {apart:.2g} of "
        f"their size, where rounding explains {most:.2g}."
    )


def _context(network: PreTrainedModel) -> int | None:
    """Positions that a network supports, in tokens; None if it does not say.

    LongRoPE frequencies depend on the longest position in a forward pass, so beyond the original
    length one request of a batch would change the others.
    """
    config = network.config.get_text_config()
    declared = int(getattr(config, "max_position_embeddings", 0) or 0)
    if declared < 0:
        raise ModelError(
            f"The configuration says that the model has {declared} positions. Correct "
            "max_position_embeddings in its config.json."
        )
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        declared = int(rope.get("original_max_position_embeddings") or declared)
    return declared or None


@torch.inference_mode()
def _check_attention(network: PreTrainedModel) -> None:
    """Run two tokens: every layer must have written its keys through our function."""
    cache = KVCache(2)
    slots = torch.arange(2).numpy()
    chunk = Chunk(0, slots.astype("int32"), 0, (), slots)
    batch = PackedBatch([chunk], cache, share=True, device=network.device)
    positions = torch.arange(2, device=network.device)[None]
    network(input_ids=positions, position_ids=positions, use_cache=False, batch=batch)
    layers = int(network.config.get_text_config().num_hidden_layers)
    if cache.layers != layers:
        raise UnsupportedNetworkError(
            f"{cache.layers} of its {layers} layers call a registered attention function; "
            "networks with other kinds of layers, or older than that interface, are not supported."
        )


def _version(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Eight hex digits that tell models apart; uses only the first values of each weight tensor."""
    digest = hashlib.blake2b(digest_size=4)
    vocabulary = sorted(tokenizer.get_vocab().items())
    digest.update(repr((network.config.to_dict(), vocabulary)).encode())
    digest.update(str(tokenizer.chat_template).encode())
    for name, weight in network.named_parameters():
        first = weight.detach().flatten()[:64].float().cpu().numpy()
        digest.update(name.encode() + first.tobytes())
    return digest.hexdigest()


def _embeddings(network: PreTrainedModel) -> int:
    embedding: Any = network.get_input_embeddings()
    return int(embedding.weight.shape[0])


def _end_tokens(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end an answer. One that the network has no embedding for is never drawn."""
    known = _embeddings(network)
    generation = getattr(network, "generation_config", None)
    end = getattr(generation, "eos_token_id", None)
    listed = end if isinstance(end, list) else [end]
    return frozenset(t for t in [*listed, tokenizer.eos_token_id] if t is not None and t < known)
