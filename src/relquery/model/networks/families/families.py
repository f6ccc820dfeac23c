"""Families by the model_type of config.json."""

from __future__ import annotations

from collections.abc import Callable

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Decoder
from relquery.model.networks.families.gemma import gemma2, gemma3
from relquery.model.networks.families.granite import granite
from relquery.model.networks.families.llama import llama, smollm3
from relquery.model.networks.families.mistral import mistral
from relquery.model.networks.families.phi import phi3
from relquery.model.networks.families.qwen import qwen, qwen3_moe

FAMILIES: dict[str, Callable[[Settings], Decoder]] = {
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "granite": granite,
    "llama": llama,
    "mistral": mistral,
    "phi3": phi3,
    "qwen2": qwen,
    "qwen3": qwen,
    "qwen3_moe": qwen3_moe,
    "smollm3": smollm3,
}


def read_decoder(settings: Settings) -> Decoder:
    """The decoder that a configuration describes. Raises ModelError."""
    kind = settings.text("model_type")
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise settings.refused(f"it is of the kind '{kind}', and the engine computes {known}")
    settings.expect("quantization_config", None)
    decoder = FAMILIES[kind](settings)
    settings.end()
    return decoder
