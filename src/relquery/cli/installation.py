"""What is installed here, and what the processor can do."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from relquery import native

_PACKAGES = "duckdb", "torch", "transformers", "vllm"


def installation() -> Mapping[str, str]:
    """By name. Raises ConfigError if RELQUERY_TARGET names a target that is not here."""
    found = {
        "relquery": version("relquery"),
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "processor": f"{os.cpu_count()} cores",
        "target": f"{native.target()} of {', '.join(native.targets())}",
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
