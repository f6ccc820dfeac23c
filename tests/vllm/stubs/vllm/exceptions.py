"""What vLLM raises for wrong requests; no ValueError."""

from __future__ import annotations


class VLLMValidationError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
