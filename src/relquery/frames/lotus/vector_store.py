"""LOTUS's vector stores. relquery keeps vectors itself, so only the one in memory is there."""

from __future__ import annotations

from typing import Any

from relquery.errors import ConfigError


class FaissVS:
    """Vectors in memory, as relquery keeps them anyway."""


class _Refused:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise ConfigError(
            f"{type(self).__name__} is not supported. relquery keeps vectors itself: leave out vs."
        )


class QdrantVS(_Refused):
    """Refused."""


class WeaviateVS(_Refused):
    """Refused."""


class ChromaVS(_Refused):
    """Refused."""


class PineconeVS(_Refused):
    """Refused."""
