"""Spans in vLLM: their states are reused at any position, by a KV connector. See docs/vllm.md.

vllm serve MODEL --kv-transfer-config '{"kv_connector": "SpanConnector", "kv_role": "kv_both"}'
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from relquery.errors import MissingExtraError

if TYPE_CHECKING:
    from relquery.vllm.spans.connector import SpanConnector

__all__ = ["SpanConnector"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: it needs vLLM."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("vllm") is None:
        raise MissingExtraError("relquery.vllm", "vllm")
    return getattr(import_module("relquery.vllm.spans.connector"), name)
