"""Python's garbage collector in a process that serves."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""New objects after which the youngest are looked at; Python's own number is 700."""


def settle() -> None:
    """Leave what a process has loaded out of all later collections.

    A collection of everything takes a fifth of a second with the libraries that are loaded, and
    there are several a minute under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
