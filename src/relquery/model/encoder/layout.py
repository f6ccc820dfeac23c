"""What the folder of an encoder says about its vectors, in the files of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from relquery.errors import ModelError
from relquery.model.hub import ENCODER, find_folder

Pooling = Literal["mean", "cls", "last"]
POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "last")
_FLAGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_MODES: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_NETWORK, _POOLING = "Transformer", "Pooling"
_KNOWN = (_NETWORK, _POOLING, "Normalize")  # vectors get length 1 anyway


@dataclass(frozen=True, slots=True)
class Layout:
    """network: the folder of the network. longest: tokens that are read of a text; None for
    as many as the network can. prompt: what each text begins with.
    """

    network: str
    pooling: Pooling
    longest: int | None
    in_lower_case: bool
    prompt: str


def read_layout(spec: str, pooling: Pooling | None) -> Layout:
    """The layout of a folder or a Hugging Face name; the default if it has no such files.

    pooling: in place of what the files say. Raises ModelError for what we do not compute, such as a
    layer behind the pooling.
    """
    folder = Path(spec) if Path(spec).is_dir() else find_folder(spec, ENCODER)
    modules = _modules(spec, folder)
    network = modules.get(_NETWORK, "")
    if network and not Path(spec).is_dir():
        raise ModelError(
            f"The network of the encoder '{spec}' lies in its folder {network}. Download it, and "
            "give the local folder."
        )
    reading = _read(folder / network / "sentence_bert_config.json")
    prompts = _read(folder / "config_sentence_transformers.json")
    prompt = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name")) or ""
    said = _read(folder / modules.get(_POOLING, "1_Pooling") / "config.json")
    if prompt and not said.get("include_prompt", True):
        raise ModelError(
            f"The encoder '{spec}' puts {prompt!r} before each text and leaves it out when it "
            "pools. That is not supported: set default_prompt_name in its "
            "config_sentence_transformers.json to null, or use another encoder."
        )
    return Layout(
        str(folder / network),
        pooling or (_pooling(spec, said) if said else "mean"),
        reading.get("max_seq_length"),
        bool(reading.get("do_lower_case")),
        prompt,
    )


def _modules(spec: str, folder: Path) -> dict[str, str]:
    """Folders of the parts of an encoder, by kind, from its modules.json."""
    modules = _json(folder / "modules.json")
    if modules is None:
        return {}
    try:
        found = {one["type"].rpartition(".")[2]: one["path"] for one in modules}
    except (TypeError, KeyError, AttributeError) as error:
        raise ModelError(
            f"modules.json of the encoder '{spec}' does not list modules with their types. "
            "Download it again."
        ) from error
    unknown = [kind for kind in found if kind not in _KNOWN]
    if unknown:
        raise ModelError(
            f"The encoder '{spec}' has a module of the kind {unknown[0]}, which is not supported. "
            f"Supported: {', '.join(_KNOWN)}. Use another encoder, or an Embedder of your own."
        )
    return found


def _pooling(spec: str, said: Mapping[str, Any]) -> Pooling:
    """How to pool, from the configuration of the pooling, old or new."""
    mode = said.get("pooling_mode")
    wanted: Sequence[str] = [mode] if isinstance(mode, str) else mode or ()
    wanted = wanted or [name for name, on in said.items() if on and name.startswith("pooling_mode")]
    found = [(_FLAGS | _MODES).get(name) for name in wanted]
    if len(found) != 1 or found[0] is None:
        raise ModelError(
            f"The encoder '{spec}' asks for the pooling {' + '.join(wanted) or 'none'}. Supported "
            f"is one of {', '.join(POOLINGS)}. Choose one, e.g. with "
            "rq.load_embedder(..., pooling='mean')."
        )
    return found[0]


def _read(file: Path) -> Mapping[str, Any]:
    """A JSON object; empty if there is none. Raises ModelError."""
    content = _json(file)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ModelError(f"{file} is not a JSON object. Download it again.")
    return content


def _json(file: Path) -> Any:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}. Download it again.") from error
