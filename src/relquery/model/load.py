"""Opening a model by its name: in relquery's own runtime, or in torch's."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from relquery.errors import MissingExtraError, ModelError, UnsupportedNetworkError, unknown
from relquery.model.formats.adapter import Lora, read_lora
from relquery.model.gguf_store import find_gguf
from relquery.model.hub import ADAPTER, find_folder
from relquery.model.native_model import (
    INT8_PRODUCTS,
    NativeModel,
    open_folder,
    open_gguf,
    open_random,
)
from relquery.model.networks.random import byte_tokenizer
from relquery.model.served import ServedModel
from relquery.model.text.tokenizer import as_tokenizer, read_tokenizer

DTYPES = ("float32", "bfloat16", "float16", INT8_PRODUCTS)
BITS = {"int8": 8, "int4": 4}
CACHES = ("int8",)
_DRIVERS = {"linux": ("libcuda.so.1", "libamdhip64.so"), "win32": ("nvcuda.dll",)}
_LOG = logging.getLogger(__name__)


def load(
    spec: str,
    *,
    dtype: str | None = None,
    device: str | None = None,
    tokenizer: object = None,
    quantize: str | None = None,
    adapters: Mapping[str, str] | None = None,
    kv_cache_dtype: str | None = None,
) -> ServedModel:
    """Load a model.

    spec: a Hugging Face name, a folder, "random:layers=8,hidden=256,..." (see RandomSpec), or what
    find_gguf finds.
    dtype: default float32 on a CPU, bfloat16 on CUDA; "int8" on a CPU, for products with weights in
    4 or 8 bits whose rows are rounded to 8. device: default CUDA if there is one and
    torch is installed. tokenizer: replaces the model's own; of `tokenizers` or of transformers.
    quantize: "int8" or "int4" to round weights to so many bits when they are loaded, of safetensors
    on a CPU. adapters: by name, folders or Hugging Face names of those that may be used with it.
    kv_cache_dtype: "int8" to keep keys and values in 8 bits, on a CPU; default dtype.

    On a CPU relquery's own runtime computes, or torch's for families that it does not know. Raises
    ModelError, and MissingExtraError where torch is needed and not installed.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ModelError(unknown("dtype", dtype, DTYPES))
    if quantize is not None and quantize not in tuple(BITS):
        raise ModelError(unknown("quantize", str(quantize), tuple(BITS)))
    if kv_cache_dtype not in (None, *CACHES):
        raise ModelError(unknown("kv_cache_dtype", str(kv_cache_dtype), CACHES))
    bits = BITS[quantize] if quantize else 0
    rounded = {
        "quantize": quantize is not None,
        "kv_cache_dtype": kv_cache_dtype is not None,
        "dtype='int8'": dtype == INT8_PRODUCTS,
    }
    given = None if tokenizer is None else as_tokenizer(tokenizer)
    loras = [
        read_lora(find_folder(where, ADAPTER), name) for name, where in (adapters or {}).items()
    ]
    file = find_gguf(spec)
    if file is not None:
        if bits:
            raise ModelError(
                f"'{spec}' is a GGUF file, whose weights stay in its formats. Leave quantize out, "
                "or give a file in fewer bits."
            )
        if device not in (None, "cpu"):
            raise ModelError(
                f"'{spec}' is a GGUF file, which is computed on a CPU. Leave device out, or give a "
                "model in safetensors."
            )
        model = open_gguf(file, spec, dtype or "float32", given, loras=loras)
        return _cached(model, kv_cache_dtype)
    device = device or ("cuda" if has_gpu() else "cpu")
    if device != "cpu":
        _check_torch(rounded, loras, f"on {device}")
        return _load_torch(spec, dtype, device, tokenizer)
    wanted = dtype or "float32"
    if spec.startswith("random:") and wanted != "float16":
        model = open_random(spec, wanted, given or byte_tokenizer(), bits, loras)
        return _cached(model, kv_cache_dtype)
    try:
        folder = find_folder(spec)
        chosen = given or read_tokenizer(folder)
        model = open_folder(folder, spec, wanted, chosen, bits=bits, loras=loras)
        return _cached(model, kv_cache_dtype)
    except UnsupportedNetworkError as refused:
        if find_spec("torch") is None:
            raise
        _check_torch(rounded, loras, f"for model '{spec}': {refused.why}")
        _LOG.info("%s", refused)
        try:
            return _load_torch(spec, wanted, device, tokenizer)
        except MissingExtraError:
            raise
        except ModelError as error:
            raise ModelError(
                f"Model '{spec}' cannot run in relquery's own runtime: {refused.why}. Nor in "
                f"torch's: {error}"
            ) from error


def _cached(model: NativeModel, kv_cache_dtype: str | None) -> NativeModel:
    return model if kv_cache_dtype is None else model.with_cache_in_8_bits()


def _check_torch(rounded: Mapping[str, bool], loras: Sequence[Lora], where: str) -> None:
    """Raises ModelError for what only relquery's own runtime does."""
    if loras:
        raise ModelError(
            f"Adapter '{loras[0].name}': adapters are computed in relquery's own runtime, and not "
            f"{where}. Merge it into its model with PEFT's merge_and_unload(), and open what that "
            "saves."
        )
    for option, is_given in rounded.items():
        if is_given:
            raise ModelError(
                f"{option} rounds numbers in relquery's own runtime, and not {where}. Leave "
                f"{option.partition('=')[0]} out."
            )


def _load_torch(spec: str, dtype: str | None, device: str, tokenizer: object) -> ServedModel:
    try:
        from relquery.model.torch_runtime.load import load as load_torch
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"Running the model '{spec}' on '{device}'", "torch") from error
    return load_torch(spec, dtype=dtype, device=device, tokenizer=tokenizer)


def has_gpu() -> bool:
    """Whether torch can compute on a GPU. It is only imported where there is a driver."""
    if find_spec("torch") is None or not _has_driver():
        return False
    import torch

    return bool(torch.cuda.is_available())


def _has_driver() -> bool:
    for name in _DRIVERS.get(sys.platform, ()):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False
