"""Takes keys and passwords out of texts that are shown or stored: known ones, and what looks so."""

from __future__ import annotations

import re

_HIDDEN = "***"
_SHORTEST = 8
"""Characters of a known key; shorter ones, such as "none", are words."""
_known: set[str] = set()
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


def hide(key: str) -> None:
    """Note a key of this process, so that it is taken out of messages whatever it looks like."""
    if len(key) >= _SHORTEST:
        _known.add(key)


def redacted(text: str) -> str:
    """A message, such as a server's error, with stars in place of secrets."""
    for key in _known:
        text = text.replace(key, _HIDDEN)
    return _NAMED.sub(rf"\1{_HIDDEN}", _KEYS.sub(_HIDDEN, text))


def without_credentials(address: str) -> str:
    """An address without the user, and without parameters that look like secrets."""
    return _PARAMETER.sub("", _USER.sub("", address))
