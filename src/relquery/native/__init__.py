"""Loops in C++, and which instructions of the processor they use."""

from __future__ import annotations

from relquery import _native
from relquery.errors import ConfigError


def target() -> str:
    """The instructions that kernels use: v2, v3 (AVX2), v4 (AVX-512), v4-bf16, amx, arm64 or
    arm64-dot.

    The best that this machine has, or less if the environment says so: RELQUERY_TARGET=v3. Raises
    ConfigError for a target that it cannot run.
    """
    try:
        return _native.target()
    except ValueError as error:
        raise ConfigError(str(error)) from None


def targets() -> list[str]:
    """The targets that this machine and installation can run, from the least to the most."""
    return _native.targets()


def has_pairs() -> bool:
    """Whether products of bfloat16 numbers are as fast as those of float32.

    On processors of the x86 family without such instructions oneDNN takes seven times as long.
    """
    return target() in ("v4-bf16", "amx", "arm64", "arm64-dot")


def has_tiles() -> bool:
    """Whether AMX multiplies bfloat16 numbers."""
    return target() == "amx"
