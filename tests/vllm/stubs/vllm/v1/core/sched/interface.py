"""Whether a scheduler is paused."""

from __future__ import annotations

from enum import IntEnum


class PauseState(IntEnum):
    UNPAUSED = 0
    PAUSED_NEW = 1
    PAUSED_ALL = 2
