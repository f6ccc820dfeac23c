"""What the checks of a network found, kept on disk for the next time that it is loaded.

The checks compare code with code: what they find depends on a network's configuration, on what
computes it and on the processor. Weights can hide a difference, as a layer does whose output is
multiplied by zeros before it is trained. All of these are in the key, of the weights a sample.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedModel

from relquery import native
from relquery.model.attention.function import AttentionOptions, Watched

FOLDER = "RELQUERY_CACHE"
"""Environment variable: the folder to keep findings in; "off" to keep none."""
SAMPLED = 256


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found about a network that computes on our attention function what it should.

    layers: options of each layer's last call of the function. why_stock: see LoadedModel.
    """

    layers: tuple[AttentionOptions, ...]
    why_stock: str


def name_of(network: PreTrainedModel) -> str:
    """32 hex digits that depend on all that findings depend on."""
    kind = type(network)
    content = (
        f"{kind.__module__}.{kind.__qualname__}",
        json.dumps(network.config.to_dict(), sort_keys=True, default=str),
        str(network.dtype),
        str(network.device),
        transformers.__version__,
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        native.target(),
        platform.machine(),
        _own_code(),
        _sample(network),
    )
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def recall(name: str) -> Findings | None:
    """What was kept under a name; None if nothing was, or if it cannot be read."""
    folder = _folder()
    try:
        kept = json.loads((folder / f"{name}.json").read_text()) if folder else None
        layers = tuple(AttentionOptions(**layer) for layer in kept["layers"]) if kept else ()
        return Findings(layers, str(kept["why_stock"])) if kept else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep(name: str, findings: Findings) -> None:
    """Keep findings under a name, if there is a folder that can be written to."""
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.{os.getpid()}.part"
        part.write_text(json.dumps(asdict(findings)))
        part.replace(folder / f"{name}.json")


def last_calls(watched: Watched) -> tuple[AttentionOptions, ...]:
    """Options of each layer's last call."""
    return tuple(watched.layers[layer][-1] for layer in sorted(watched.layers))


def _folder() -> Path | None:
    given = os.environ.get(FOLDER)
    if given == "off":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "relquery"
    return (Path(given) if given else base) / "networks"


def _sample(network: PreTrainedModel) -> str:
    """A digest of SAMPLED numbers, evenly spread, of each weight and buffer."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in chain(network.named_parameters(), network.named_buffers()):
        step = max(1, tensor.numel() // SAMPLED)
        numbers = tensor.detach().flatten()[::step].float().cpu().numpy()
        digest.update(name.encode() + numbers.tobytes())
    return digest.hexdigest()


@cache
def _own_code() -> str:
    """A digest of the package that computes networks."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
