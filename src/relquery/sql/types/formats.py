"""Formats of texts in a JSON Schema that no type of DuckDB stands for, and how they are checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

_EMAIL = re.compile(r"[^@\s]+@[\w-]+(\.[\w-]+)+")
_HOST = re.compile(r"(?=.{1,253}$)(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")


def has_format(text: str, name: str) -> bool:
    """Whether a text has the format of a name in FORMATS; any text has "", no format."""
    try:
        return not name or bool(FORMATS[name](text))
    except ValueError:
        return False


def _is_uri(text: str) -> bool:
    found = urlsplit(text)
    return bool(found.scheme and (found.netloc or found.path)) and not re.search(r"\s", text)


FORMATS: dict[str, Callable[[str], object]] = {
    "email": _EMAIL.fullmatch,
    "hostname": _HOST.fullmatch,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "uri": _is_uri,
}
