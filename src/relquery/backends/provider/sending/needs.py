"""What a call needs of limits and of a budget, before it is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

# Tokens that servers put around messages, and with which some describe a schema.
_AROUND, _OF_SCHEMA = 64, 512
OF_FORM = ("response_format", "text", "output_config")
"""Arguments of requests, by API, that say what the answer must be."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class Need:
    """prompt: bytes of the prompt, of which no tokenizer makes more tokens. output: tokens that
    the answer may have, by the request.
    """

    prompt: int
    output: int

    @classmethod
    def of(cls, body: dict[str, Any]) -> Need:
        """Of the body of a request."""
        output = max(body.get(name, 0) for name in _LIMITS)
        size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        return cls(size + _AROUND + _OF_SCHEMA * any(name in body for name in OF_FORM), output)
