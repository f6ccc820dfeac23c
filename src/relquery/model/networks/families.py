"""The decoders that the native runtime computes, by the model_type of config.json.

A family reads the keys of its configuration one by one: each is understood, known not to matter, or
refused by name, so that no network is computed otherwise than its authors meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from relquery.model.formats.config import ConfigReader
from relquery.model.networks.builder import ACTIVATIONS
from relquery.model.networks.decoder import Attention, Decoder, Experts
from relquery.model.networks.rotation import Rotation, read_rotation

T = TypeVar("T")
FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers."""


def decoder_of(
    settings: ConfigReader, layers: Sequence[Attention], width: int, **other: Any
) -> Decoder:
    """A decoder of layers whose heads have a width. other: fields that the family says itself."""
    settings.expect("rope_interleaved", False)
    if "activation" not in other:
        other["activation"] = activation_of(settings, "hidden_act", "silu")
    context, heads = settings.integer("max_position_embeddings"), head_count(settings)
    bounds = [each.rotation.context or context for each in layers if each.rotation is not None]
    usual = {"scale": width**-0.5, "is_tied": settings.flag("tie_word_embeddings", False)}
    return Decoder(
        hidden=settings.integer("hidden_size"),
        inner=settings.integer("intermediate_size"),
        heads=heads,
        kv_heads=settings.integer("num_key_value_heads", heads),
        width=width,
        vocabulary=settings.integer("vocab_size"),
        context=min([context, *bounds]),
        layers=tuple(layers),
        epsilon=settings.number("rms_norm_eps", 1e-6),
        **usual | other,
    )


def activation_of(settings: ConfigReader, key: str, usual: str) -> int:
    """The activation of perceptrons."""
    name = settings.text(key, usual)
    if name not in ACTIVATIONS:
        raise settings.refused(f"its activation is '{name}'")
    return ACTIVATIONS[name]


def head_count(settings: ConfigReader) -> int:
    """Heads of queries."""
    return settings.integer("num_attention_heads")


def layer_count(settings: ConfigReader) -> int:
    """Layers."""
    return settings.integer("num_hidden_layers")


def head_width(settings: ConfigReader) -> int:
    """The width of a head."""
    usual = settings.integer("hidden_size") // head_count(settings)
    return settings.integer("head_dim", usual)


def read_biases(settings: ConfigReader) -> None:
    """Understand what says that matrices have biases, which are read where they are."""
    for key in ("attention_bias", "mlp_bias"):
        settings.flag(key, False)


def windows_of(settings: ConfigReader, window: int, usual: Sequence[str]) -> list[int]:
    """The window of each layer, 0 for none. usual: kinds of layers where none are listed."""
    listed = settings.get("layer_types") or usual
    if not isinstance(listed, Sequence) or len(listed) != layer_count(settings):
        raise settings.refused("layer_types is not a list of a kind for each layer")
    unknown = sorted({*map(str, listed)} - {FULL, SLIDING})
    if unknown:
        raise settings.refused(f"it has layers of the kind '{unknown[0]}'")
    return [window if each == SLIDING else 0 for each in listed]


def check_no_windows(settings: ConfigReader) -> None:
    """Refuse layers with a window in a family that has none."""
    if any(windows_of(settings, 1, [FULL] * layer_count(settings))):
        raise settings.refused("layer_types lists layers with a window, which its kind has not")


def llama(settings: ConfigReader) -> Decoder:
    """A Llama."""
    width = head_width(settings)
    read_biases(settings)
    check_no_windows(settings)
    layers = [Attention(read_rotation(settings, width))] * layer_count(settings)
    return decoder_of(settings, layers, width)


def smollm3(settings: ConfigReader) -> Decoder:
    """A SmolLM 3."""
    width, count = head_width(settings), layer_count(settings)
    rotation = read_rotation(settings, width, theta=2e6)
    read_biases(settings)
    settings.get("max_window_layers")  # of Qwen's, which it was made from
    window = settings.integer("sliding_window", 0, least=0)
    if not settings.flag("use_sliding_window", False):
        window = 0
    every = settings.integer("no_rope_layer_interval", 4)
    turned = settings.get("no_rope_layers") or [(index + 1) % every > 0 for index in range(count)]
    if not isinstance(turned, list) or len(turned) != count:
        raise settings.refused("no_rope_layers is not a list of a number for each layer")
    windows = windows_of(settings, window, [SLIDING] * count)
    layers = [
        Attention(rotation if is_turned else None, each)
        for is_turned, each in zip(turned, windows, strict=True)
    ]
    is_tied = settings.flag("tie_word_embeddings", True)
    return decoder_of(settings, layers, width, is_tied=is_tied)


def mistral(settings: ConfigReader) -> Decoder:
    """A Mistral."""
    width = head_width(settings)
    rotation = read_rotation(settings, width)
    window = settings.integer("sliding_window", 0, least=0)
    windows = windows_of(settings, window, [SLIDING] * layer_count(settings))
    return decoder_of(settings, [Attention(rotation, each) for each in windows], width)


def phi3(settings: ConfigReader) -> Decoder:
    """A Phi-3."""
    width = head_width(settings)
    rotation = read_rotation(settings, width, may_be_partial=True)
    settings.get("original_max_position_embeddings")  # also where nothing is rotated by it
    for key in ("attention_bias", "lm_head_bias", "mlp_bias"):
        settings.expect(key, False)
    for key in ("full_attn_mod", "interpolate_factor"):  # of files that bring their own code
        settings.expect(key, 1)
    window = settings.integer("sliding_window", 0, least=0)
    layers = [Attention(rotation, window)] * layer_count(settings)
    joined = {"qkv": ("qkv_proj",), "gate_up": ("gate_up_proj",)}
    return decoder_of(settings, layers, width, **joined)


def granite(settings: ConfigReader) -> Decoder:
    """A Granite."""
    width = head_width(settings)
    read_biases(settings)
    check_no_windows(settings)
    divisor = settings.number("logits_scaling", 1.0)
    if not divisor:
        raise settings.refused("logits_scaling is 0")
    return decoder_of(
        settings,
        [Attention(read_rotation(settings, width))] * layer_count(settings),
        width,
        scale=settings.number("attention_multiplier", 1.0),
        embedding_scale=settings.number("embedding_multiplier", 1.0),
        residual_scale=settings.number("residual_multiplier", 1.0),
        logits_scale=1 / divisor,
    )


def qwen(settings: ConfigReader) -> Decoder:
    """A Qwen 2 or 3."""
    width, count = head_width(settings), layer_count(settings)
    rotation = read_rotation(settings, width)
    settings.flag("attention_bias", False)
    settings.expect("use_mrope", False)
    first = settings.integer("max_window_layers", count, least=0)
    window = settings.integer("sliding_window", 0, least=0)
    if not settings.flag("use_sliding_window", False):
        window = 0
    usual = [SLIDING if index >= first else FULL for index in range(count)]
    layers = [Attention(rotation, each) for each in windows_of(settings, window, usual)]
    has_norms = settings.text("model_type") == "qwen3"
    return decoder_of(settings, layers, width, has_head_norms=has_norms)


def qwen3_moe(settings: ConfigReader) -> Decoder:
    """A Qwen 3 with experts. All layers have a window, or none has."""
    width, count = head_width(settings), layer_count(settings)
    rotation = read_rotation(settings, width)
    settings.flag("attention_bias", False)
    window = settings.integer("sliding_window", 4096, least=0)
    if not settings.flag("use_sliding_window", False):
        window = 0
    for key in ("max_window_layers", "output_router_logits", "router_aux_loss_coef"):
        settings.get(key)  # nothing reads them here
    layers = [Attention(rotation, window)] * count
    return decoder_of(
        settings, layers, width, has_head_norms=True, experts=_experts(settings, count)
    )


def _experts(settings: ConfigReader, count: int) -> Experts:
    every, listed = settings.integer("decoder_sparse_step", 1), settings.get("mlp_only_layers")
    dense = [] if listed is None else listed
    if not isinstance(dense, list) or not all(type(each) is int for each in dense):
        raise settings.refused("mlp_only_layers is not a list of numbers of layers")
    layers = frozenset(index for index in range(count) if (index + 1) % every == 0) - {*dense}
    experts = settings.integer("num_experts", settings.integer("num_local_experts", 128))
    chosen = settings.integer("num_experts_per_tok", 8)
    if chosen > experts:
        raise settings.refused(f"a token has {chosen} of {experts} experts")
    inner = settings.integer("moe_intermediate_size", 768)
    return Experts(layers, experts, chosen, inner, settings.flag("norm_topk_prob", False))


def gemma2(settings: ConfigReader) -> Decoder:
    """A Gemma 2."""
    width = settings.integer("head_dim", 256)
    rotation = read_rotation(settings, width)
    softcap = _softcap(settings, "attn_logit_softcapping", 50.0)
    logits_softcap = _softcap(settings, "final_logit_softcapping", 30.0)
    return _gemma(
        settings,
        rotation,
        rotation,
        every=2,
        has_head_norms=False,
        softcap=softcap,
        logits_softcap=logits_softcap,
    )


def _softcap(settings: ConfigReader, key: str, usual: float) -> float:
    """A bound of scores or logits, 0 for none. usual: where the key is not there."""
    return settings.number(key, 0.0) if key in settings else usual


def gemma3(settings: ConfigReader) -> Decoder:
    """The decoder of a Gemma 3."""
    width = settings.integer("head_dim", 256)
    far = read_rotation(settings, width, name=FULL, theta=1e6)
    theta = settings.number("rope_local_base_freq", 1e4)
    given = settings.within("rope_parameters")
    if given is not None and SLIDING in given:
        near = read_rotation(settings, width, name=SLIDING, theta=theta)
    else:
        near = read_rotation(ConfigReader(settings.name, {"rope_theta": theta}), width)
    settings.get("_sliding_window_pattern")  # what layer_types was made of
    every = settings.integer("sliding_window_pattern", 6)
    settings.get("attn_logit_softcapping")  # which it does not read
    return _gemma(
        settings,
        far,
        near,
        every=every,
        has_head_norms=True,
        softcap=0.0,
        logits_softcap=settings.number("final_logit_softcapping", 0.0),
    )


def _gemma(
    settings: ConfigReader,
    far: Rotation,
    near: Rotation,
    *,
    every: int,
    has_head_norms: bool,
    softcap: float,
    logits_softcap: float,
) -> Decoder:
    """far, near: rotations of layers without and with a window. every: the how manieth has none."""
    settings.flag("attention_bias", False)
    settings.get("hidden_act")  # which it does not read
    settings.expect("use_bidirectional_attention", False, None)
    usual = [SLIDING if (index + 1) % every else FULL for index in range(layer_count(settings))]
    window = settings.integer("sliding_window", 4096)
    settings.expect("sliding_window_size", window)
    windows = windows_of(settings, window, usual)
    return decoder_of(
        settings,
        [Attention(near if each else far, each) for each in windows],
        settings.integer("head_dim", 256),
        scale=settings.number("query_pre_attn_scalar", 256.0) ** -0.5,
        activation=activation_of(settings, "hidden_activation", "gelu_pytorch_tanh"),
        softcap=softcap,
        logits_softcap=logits_softcap,
        norm_offset=1.0,
        has_head_norms=has_head_norms,
        has_post_norms=True,
        embedding_scale=settings.integer("hidden_size") ** 0.5,
        is_tied=settings.flag("tie_word_embeddings", True),
    )


FAMILIES: dict[str, Callable[[ConfigReader], Decoder]] = {
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


def read_decoder(settings: ConfigReader) -> Decoder:
    """The decoder that a configuration describes. Raises ModelError."""
    decoder = family_of(settings, FAMILIES)(settings)
    settings.end()
    return decoder


def family_of(settings: ConfigReader, families: Mapping[str, T]) -> T:
    """What reads a configuration."""
    kind = settings.text("model_type")
    if kind not in families:
        known = ", ".join(sorted(families))
        raise settings.refused(f"it is of the kind '{kind}', and the engine computes {known}")
    return families[kind]
