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
    the answer may have, by the request. keeps_hour: whether prefixes may be written to a cache for
    an hour.
    """

    prompt: int
    output: int
    keeps_hour: bool = False

    @classmethod
    def of(cls, body: dict[str, Any]) -> Need:
        """Of the body of a request."""
        output = max(body.get(name, 0) for name in _LIMITS)
        text = json.dumps(body, ensure_ascii=False)
        size = len(text.encode("utf-8", "surrogatepass"))
        size += _AROUND + _OF_SCHEMA * any(name in body for name in OF_FORM)
        return cls(size, output, '"ttl": "1h"' in text)
