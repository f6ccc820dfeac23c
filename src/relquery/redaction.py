"""Takes what looks like a key or a password out of texts that are shown or stored."""

from __future__ import annotations

import re

_HIDDEN = "***"
_KEYS = re.compile(
    r"(?i)\b(?:sk|pk|rk|key|hf|gsk|xai|AIza)[-_][\w.*-]{6,}|\bAIza[\w-]{20,}"
    r"|(?<=bearer )\S+|(?<=://)[^/@\s]+(?=@)"
)
_NAMED = re.compile(
    r"(?i)\b((?:[\w-]*[-_])?(?:key|token|secret|passw(?:or)?d|signature)[\"']?\s*[:=]\s*[\"']?)"
    r"[^\s\"'&,;]{6,}"
)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETER = re.compile(r"(?i)(?<=[?&])[\w.-]*(?:key|token|secret|passw\w*|sig\w*|code)=[^&#\s]*&?")


def redacted(text: str) -> str:
    """A message, such as a server's error, with stars in place of what looks like a secret."""
    return _NAMED.sub(rf"\1{_HIDDEN}", _KEYS.sub(_HIDDEN, text))


def without_credentials(address: str) -> str:
    """An address without the user, and without parameters that look like secrets."""
    return _PARAMETER.sub("", _USER.sub("", address))
