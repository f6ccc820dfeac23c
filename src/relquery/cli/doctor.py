"""`relquery doctor`: what is installed here, and whether a model computes what it should."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from relquery import native
from relquery.backends.local.open import compare_with_stock
from relquery.errors import ModelError


def doctor(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A model of this machine to check.")
    ] = None,
) -> None:
    """Say what is installed here, and how far a model is from that of transformers.

    [bold]Example[/bold]

    relquery doctor -m Qwen/Qwen3-0.6B
    """
    for name, told in installation().items():
        typer.echo(f"{name:<13} {told}")
    if model is not None:
        check_model(model)


MOST_APART = 1e-3
"""Relative distance of log-probabilities in float32 that rounding explains."""
_PACKAGES = "duckdb", "torch", "transformers", "vllm"


def installation() -> Mapping[str, str]:
    """By name. Raises ConfigError if RELQUERY_TARGET names a target that is not here."""
    versions = {
        "relquery": version("relquery"),
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "processor": f"{os.cpu_count()} cores",
        "target": f"{native.target()} of {', '.join(native.targets())}",
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def check_model(name: str) -> None:
    """Print how far a model's logits are from those of transformers. Raises ModelError where they
    are further apart than rounding explains."""
    furthest = 0.0
    for each in compare_with_stock(name):
        told = f"off by {each.off:.0e}, {each.same} of {each.tokens} greedy tokens the same"
        typer.echo(f"{'compared':<13} {told}: {each.text}")
        furthest = max(furthest, each.off)
    if furthest > MOST_APART:
        raise ModelError(
            f"'{name}' computes something else here than in transformers: its log-probabilities "
            f"are off by {furthest:.0e}, and rounding explains {MOST_APART:.0e}. Report it with "
            "its config.json, and run the model on a server such as vLLM meanwhile."
        )
