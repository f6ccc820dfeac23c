"""Stands in for vLLM's module."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StructuredOutputsParams:
    json: str | None = None
