"""The quantization_config of a model folder: how its matrices are coded in few bits.

Every key is understood, known not to matter, or refused, as in the rest of config.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from relquery.model.formats.config import ConfigReader


class CodeLayout(Enum):
    """The place and order of a matrix's codes."""

    PACKED = "pack-quantized"
    """compressed-tensors: rows of words of 32 bits."""
    PLAIN = "int-quantized"
    """compressed-tensors: a byte a number."""
    AWQ = "awq"
    """Columns, eight outputs in a word."""
    GPTQ = "gptq"
    """Columns, several inputs in a word."""


@dataclass(frozen=True, slots=True)
class Coding:
    """The coding of a folder's matrices."""

    layout: CodeLayout
    bits: int
    """Of a code, 4 or 8."""
    group: int
    """Inputs that have a scale, and perhaps a zero point, in common; 0 for all of a row."""
    has_zeros: bool
    """Whether zero points must be there."""
    has_order: bool = False
    """Whether it must be there which group an input is in."""
    is_less: bool = False
    """Whether zero points are kept less 1."""


def read_coding(settings: ConfigReader) -> Coding | None:
    """The coding of a folder, None where its numbers are kept as they are. Raises
    UnsupportedNetworkError for one that is not read here."""
    told = settings.within("quantization_config")
    if told is None:
        return None
    method = told.text("quant_method")
    if method not in _METHODS:
        known = ", ".join(sorted(_METHODS))
        raise told.refused(f"its weights are quantized by '{method}', and the engine reads {known}")
    coding = _METHODS[method](told)
    told.end(_INCIDENTAL)
    return coding


def _awq(told: ConfigReader) -> Coding:
    told.expect("bits", 4)
    told.expect("desc_act", False)
    _form(told, "version", "gemm")
    return Coding(CodeLayout.AWQ, 4, _group(told), has_zeros=True)


def _gptq(told: ConfigReader) -> Coding:
    is_less = _form(told, "checkpoint_format", "gptq", "gptq_v2") == "gptq"
    has_order = told.flag("desc_act", False)
    return Coding(CodeLayout.GPTQ, _bits(told, "bits"), _group(told), True, has_order, is_less)


def _form(told: ConfigReader, key: str, *known: str) -> str:
    """How codes and zero points of AWQ and GPTQ are laid out."""
    told.expect("adapter", None)
    told.expect("dynamic", None, {})
    told.expect("is_marlin_format", False)
    told.expect("pack_dtype", "int32")
    keys = [each for each in (key, "checkpoint_format", "format") if told.get(each) is not None]
    forms = {told.text(each).lower() for each in keys} or {known[0]}
    if len(forms) > 1 or not forms <= set(known):
        listed = " and ".join(sorted(forms))
        raise told.refused(f"{key} is {listed}, and the engine reads {' and '.join(known)}")
    return forms.pop()


def _compressed_tensors(told: ConfigReader) -> Coding:
    form = told.text("format")
    if form not in (CodeLayout.PACKED.value, CodeLayout.PLAIN.value):
        raise told.refused(
            f"its format is '{form}', and of compressed-tensors the engine reads "
            f"{CodeLayout.PACKED.value} and {CodeLayout.PLAIN.value}"
        )
    told.expect("kv_cache_scheme", None)
    told.expect("moe_sparsity_config", None)
    told.expect("transform_config", None, {})
    if sparsity := told.within("sparsity_config"):
        sparsity.expect("format", "dense")
    groups = told.within("config_groups")
    schemes = {
        _scheme(told, each, CodeLayout(form)) for each in (groups.values() if groups else ())
    }
    if len(schemes) != 1:
        raise told.refused(
            f"its config_groups are of {len(schemes)} kinds, and the engine reads one"
        )
    return schemes.pop()


def _scheme(told: ConfigReader, group: object, layout: CodeLayout) -> Coding:
    """What one of config_groups says of weights. What activations would be rounded to is not
    computed."""
    outer = ConfigReader(told.name, {"config_groups": group}, told.file).within("config_groups")
    weights = outer.within("weights") if outer else None
    if outer is None or weights is None:
        raise told.refused("one of its config_groups says nothing of weights")
    outer.expect("output_activations", None)
    outer.expect("format", layout.value, None)
    bits = _bits(weights, "num_bits")
    if layout is CodeLayout.PLAIN and bits != 8:
        raise told.refused(f"{layout.value} has {bits} bits, and the engine reads 8")
    weights.expect("type", "int")
    weights.expect("dynamic", False)
    weights.expect("block_structure", None)
    weights.expect("strategy", "group", "channel", "tensor", None)
    outer.end({"targets", "input_activations"})
    has_order = weights.get("actorder") in ("group", "dynamic", True)
    size = 0 if weights.get("group_size") is None else _group(weights)
    coding = Coding(layout, bits, size, not weights.flag("symmetric", True), has_order)
    weights.end({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"})
    return coding


def _bits(told: ConfigReader, key: str) -> int:
    bits = told.integer(key)
    if bits not in (4, 8):
        raise told.refused(f"{key} is {bits}, and the engine reads 4 and 8")
    return bits


def _group(told: ConfigReader) -> int:
    size = told.integer("group_size", least=-1)
    return max(size, 0)


_METHODS: dict[str, Callable[[ConfigReader], Coding]] = {
    "awq": _awq,
    "compressed-tensors": _compressed_tensors,
    "gptq": _gptq,
}
_INCIDENTAL = frozenset(
    {
        "act_group_aware",
        "backend",
        "batch_size",
        "block_name_to_quantize",
        "cache_block_outputs",
        "damp_auto_increment",
        "damp_percent",
        "dataset",
        "disable_exllama",
        "do_fuse",
        "exllama_config",
        "fuse_max_seq_len",
        "global_compression_ratio",
        "ignore",
        "lm_head",
        "max_input_length",
        "meta",
        "method",
        "model_file_base_name",
        "model_name_or_path",
        "model_seqlen",
        "module_name_preceding_first_block",
        "modules_in_block_to_quantize",
        "modules_to_fuse",
        "modules_to_not_convert",
        "mse",
        "quantization_status",
        "static_groups",
        "sym",
        "tokenizer",
        "true_sequential",
        "use_cuda_fp16",
        "use_exllama",
        "version",
        "zero_point",
    }
)
"""Keys of how a folder was made or is run elsewhere, and of what its weights say: which matrices
are coded, and their zero points."""
