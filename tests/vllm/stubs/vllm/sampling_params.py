"""Stands in for vLLM's module."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass
class StructuredOutputsParams:
    json: str | None = None


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2
