"""Loading a network that torch computes, and its tokenizer: from a folder, by name, or random."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from relquery.config import EngineConfig
from relquery.engine.executor import SCRATCH, Chunk
from relquery.engine.requests.pieces import Adapter
from relquery.errors import ModelError, RelqueryError, UnsupportedNetworkError
from relquery.model.footprint import Footprint
from relquery.model.hub import find_folder
from relquery.model.networks.random import RandomSpec, RandomWeights, byte_tokenizer
from relquery.model.text.tokenizer import Tokenizer, as_tokenizer
from relquery.model.torch_runtime.adapters import adapt
from relquery.model.torch_runtime.attention import NAME, PackedBatch
from relquery.model.torch_runtime.cache import KVCache, PositionScheme
from relquery.model.torch_runtime.executor import Forward, TorchExecutor
from relquery.model.torch_runtime.memory import all_bytes, peak_bytes, usable_bytes
from relquery.model.torch_runtime.positions import probe_positions
from relquery.model.torch_runtime.read import read_network, read_tokenizer
from relquery.model.torch_runtime.same import check_same, not_finite, own_logits

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_PIECE_BYTES = 16 * 2**20  # of a weight that one thread hashes at a time
# Fields that say where and by what the configuration was loaded; the weights have the dtype.
_INCIDENTAL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A network with our attention function, its tokenizer, and what must be known about them.

    context: positions that the network has, in tokens. end: ids that end an answer.
    positions: how its keys carry their position. version: changes with the weights, the
    configuration, the vocabulary or the chat template.
    """

    name: str
    forward: Forward
    tokenizer: Tokenizer
    context: int
    end: frozenset[int]
    positions: PositionScheme
    version: str = ""

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, for people."""
        return f"transformers' forward pass on {self.network.device}"

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
    def adapters(self) -> Mapping[str, Adapter]:
        """None."""
        return {}

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
        return f"sha256:{fingerprint(self.network, self.tokenizer, sorted(self.end))}"

    def executor(
        self, config: EngineConfig, slots: int, since: Callable[[], float]
    ) -> TorchExecutor:
        """A new executor."""
        del since
        return TorchExecutor(
            self.forward,
            slots,
            config.segment_sharing,
            self.positions,
            config.slice_tokens,
        )

    def named(self, name: str) -> TorchModel:
        """The same under another name."""
        return replace(self, name=name)

    def footprint(self) -> Footprint:
        """How much memory it takes."""
        device, network = self.network.device, self.network
        tensors: list[Tensor] = [*network.parameters(), *network.buffers()]
        storages = {each.untyped_storage()._cdata: each.untyped_storage() for each in tensors}
        alone = TorchExecutor(self.forward, 1)
        alone.execute([Chunk(0, np.zeros(1, dtype=np.int32), 0, (), np.arange(1))])
        embedding: Any = network.get_input_embeddings()

        def peak(chunks: list[Chunk], slice_tokens: int) -> int:
            written = np.concatenate([each.writes for each in chunks])
            kept = int(written.max()) + 1 if written.max() < SCRATCH else 0
            executor = TorchExecutor(self.forward, kept, slice_tokens=slice_tokens)
            bytes_used = peak_bytes(lambda: executor.execute(chunks), device)
            return bytes_used - kept * alone.slot_bytes

        return Footprint(
            weights=sum(storage.nbytes() for storage in storages.values()),
            cached_token=alone.slot_bytes,
            hidden_token=int(embedding.weight.shape[1]) * int(embedding.weight.element_size()),
            context=self.context,
            vocabulary=self.vocabulary,
            peak=peak,
            is_fast=device.type == "cuda",
            usable=lambda: usable_bytes(device),
            whole=lambda: all_bytes(device),
        )

    def close(self) -> None:
        """Nothing: torch gives its memory back when nobody holds it."""


def load(
    spec: str,
    *,
    dtype: str | None = None,
    device: str = "cpu",
    tokenizer: object = None,
) -> TorchModel:
    """Load a model; see relquery.model.load.load. Raises ModelError."""
    _check_device(device)
    wanted = DTYPES[dtype or ("bfloat16" if device.startswith("cuda") else "float32")]
    if spec.startswith("random:"):
        given = byte_tokenizer() if tokenizer is None else as_tokenizer(tokenizer)
        network = random_network(RandomSpec.parse(spec), given, wanted)
    else:
        folder = find_folder(spec)
        given = as_tokenizer(read_tokenizer(folder, spec) if tokenizer is None else tokenizer)
        network = read_network(folder, spec, wanted)
    network = cast(PreTrainedModel, cast(Any, network).to(device))
    return prepare(network, given, spec, _version(network, given))


def random_network(spec: RandomSpec, tokenizer: Tokenizer, dtype: torch.dtype) -> PreTrainedModel:
    """A network of transformers with the weights that the native runtime has. Raises ModelError."""
    weights = RandomWeights(spec, len(tokenizer))
    given: Any = {**spec.config(len(tokenizer))}
    del given["model_type"]
    end = tokenizer.id_of("eos_token")
    config = LlamaConfig(**given, bos_token_id=None, eos_token_id=end)
    with no_init_weights():
        network: Any = LlamaForCausalLM(config)
    own = {name: torch.from_numpy(weights[name].floats()) for name in weights}
    network.load_state_dict(own | {"lm_head.weight": own["model.embed_tokens.weight"]})
    network.tie_weights()
    return cast(PreTrainedModel, network.to(dtype))


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
    network: PreTrainedModel, tokenizer: Tokenizer, name: str, version: str = ""
) -> TorchModel:
    """Give a network our attention function and check that it is called, and that it computes what
    the network computes on its own. Raises ModelError."""
    network.train(False)
    try:
        positions = _prepare(network, tokenizer)
    except UnsupportedNetworkError as error:
        raise _refused(name, str(error)) from error
    except RelqueryError:
        raise
    except Exception as error:  # the code of a network may fail in any way
        why = f"its code does not run with the engine's attention function ({error})."
        raise _refused(name, why) from error
    end, context = _end_tokens(network, tokenizer), _context(network) or 2**31
    forward = Forward(network)
    return TorchModel(name, forward, tokenizer, context, end, positions, version)


def _refused(name: str, why: str) -> ModelError:
    return ModelError(
        f"Model '{name}' cannot run on the local engine: {why} Run it on a server such as vLLM "
        "instead, and give model='openai:NAME' and base_url='http://localhost:8000/v1'."
    )


def _prepare(network: PreTrainedModel, tokenizer: Tokenizer) -> PositionScheme:
    probes = own_logits(network, tokenizer)
    if not all(probe.whole.isfinite().all() for probe in probes):
        raise not_finite(network)
    if not adapt(network):
        network.set_attn_implementation(NAME)
    context = _context(network)
    _check_attention(network)
    check_same(network, probes, context)
    return probe_positions(network, context)


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


def _version(network: PreTrainedModel, tokenizer: Tokenizer) -> str:
    """Eight hex digits that tell models apart; uses only the first values of each weight tensor."""
    digest = hashlib.blake2b(digest_size=4)
    digest.update(repr(network.config.to_dict()).encode() + tokenizer.digest())
    for name, weight in network.named_parameters():
        first = weight.detach().flatten()[:64].float().cpu().numpy()
        digest.update(name.encode() + first.tobytes())
    return digest.hexdigest()


def _embeddings(network: PreTrainedModel) -> int:
    embedding: Any = network.get_input_embeddings()
    return int(embedding.weight.shape[0])


def _end_tokens(network: PreTrainedModel, tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens that end an answer. One that the network has no embedding for is never drawn."""
    known = _embeddings(network)
    generation = getattr(network, "generation_config", None)
    end = getattr(generation, "eos_token_id", None)
    listed = end if isinstance(end, list) else [end]
    ids = [*listed, tokenizer.id_of("eos_token")]
    return frozenset(t for t in ids if t is not None and t < known)


def fingerprint(network: PreTrainedModel, tokenizer: Tokenizer, settings: list[Any]) -> str:
    """A SHA-256 in hexadecimal of weights, configuration, tokenizer and chat template.

    Every byte of the weights counts, as in memory. So different dtypes have different digests, and
    a copy elsewhere has the same one. Takes about one core-second per gigabyte, on all cores.
    settings: what else determines the answers.
    """
    whole = hashlib.sha256()
    whole.update(repr((_config(network), settings)).encode())
    whole.update(tokenizer.digest())
    with ThreadPoolExecutor() as pool:  # hashing large pieces lets other threads run
        for hashed in pool.map(_hash, _pieces(network)):
            whole.update(hashed)
    return whole.hexdigest()


def _config(network: PreTrainedModel) -> str:
    config = network.config.to_dict()
    kept = {name: value for name, value in config.items() if name not in _INCIDENTAL}
    return json.dumps(kept, sort_keys=True, default=str)


def _pieces(network: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """(description, bytes), large weights in pieces; weights with several names occur once."""
    seen: dict[tuple[int, torch.Size], str] = {}
    for name, weight in sorted(network.state_dict().items()):
        place = weight.data_ptr(), weight.shape
        if weight.numel() and place in seen:
            yield f"{name} is {seen[place]}", torch.empty(0, dtype=torch.uint8)
            continue
        seen[place] = name
        data = weight.detach().contiguous().flatten().view(torch.uint8)
        for index in range(0, len(data), _PIECE_BYTES):
            what = f"{name} {weight.dtype} {tuple(weight.shape)} {index}"
            yield what, data[index : index + _PIECE_BYTES]


def _hash(piece: tuple[str, torch.Tensor]) -> bytes:
    what, data = piece
    hashed = hashlib.sha256(what.encode() + b"\0")
    hashed.update(data.cpu().numpy().data)
    return hashed.digest()
