"""Programs of the system that some tests drive."""

from __future__ import annotations

import os
import shutil

import pytest


def needed(*names: str) -> dict[str, str]:
    """The paths of programs. If one is missing, the test fails in CI, which installs them
    (.ci/run). Elsewhere it is skipped: they come from the operating system, not from pip.
    """
    found = {name: shutil.which(name) for name in names}
    absent = " and ".join(name for name, path in found.items() if path is None)
    if absent and not os.environ.get("CI"):
        pytest.skip(f"{absent} not found")
    assert not absent, f"{absent} must be installed where CI is set"
    return {name: str(path) for name, path in found.items()}
