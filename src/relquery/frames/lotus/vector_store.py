"""LOTUS's vector stores. relquery keeps vectors itself, so only the one in memory is there."""

from __future__ import annotations

from relquery.frames.lotus.refused import refusing


class FaissVS:
    """Vectors in memory, as relquery keeps them anyway."""


_REMEDY = "relquery keeps vectors itself: leave out vs."
QdrantVS, WeaviateVS, ChromaVS, PineconeVS = (
    refusing(name, _REMEDY) for name in ("QdrantVS", "WeaviateVS", "ChromaVS", "PineconeVS")
)
