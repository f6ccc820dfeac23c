"""LOTUS's types that programs import. Most are refused where they are used; see `refused`."""

from __future__ import annotations

from enum import Enum, auto


class ReasoningStrategy(Enum):
    """How a model is asked to reason; refused where it is used."""

    DEFAULT = auto()
    COT = auto()
    ZS_COT = auto()
    FEW_SHOT = auto()


class LongContextStrategy(Enum):
    """What is done with groups that do not fit into a context. relquery cuts them into parts."""

    TRUNCATE = "truncate"
    CHUNK = "chunk"
