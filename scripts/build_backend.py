"""The build backend: scikit-build-core's, with zig's compiler where the machine has none that fits.

RELQUERY_ZIG names the system that zig compiles for, e.g. x86_64-linux-gnu.2.28, and chooses zig.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scikit_build_core import build as backend
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
Settings = dict[str, str | list[str]]

_ZIG = "ziglang>=0.14"
_NEEDED = ["-std=c++20"]
if platform.machine().lower() in ("x86_64", "amd64"):
    _NEEDED += ["-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni", "-mamx-bf16"]


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    return [*backend.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    return [*backend.get_requires_for_build_editable(config_settings), *_compiler()]


def build_wheel(folder: str, config_settings: Settings | None = None, *given: str | None) -> str:
    with _settings(config_settings) as settings:
        return str(backend.build_wheel(folder, settings, *given))


def build_editable(folder: str, config_settings: Settings | None = None, *given: str | None) -> str:
    with _settings(config_settings) as settings:
        return str(backend.build_editable(folder, settings, *given))


def _compiler() -> list[str]:
    """The compiler that has to be installed, if one has to."""
    return [_ZIG] if _needs_zig() else []


def _needs_zig() -> bool:
    if os.environ.get("RELQUERY_ZIG"):
        return True
    named = os.environ.get("CXX")
    return not any(map(_compiles, [named] if named else ["c++", "g++", "clang++"]))


def _compiles(command: str) -> bool:
    """Whether a compiler is there, and knows the language and the instructions."""
    if shutil.which(command.split(maxsplit=1)[0]) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nothing.cpp"
        source.write_text("int nothing;\n")
        tried = [*command.split(), *_NEEDED, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@contextmanager
def _settings(given: Settings | None) -> Iterator[Settings]:
    """The settings of a build; with zig, its compiler under the names that CMake asks for."""
    settings = dict(given or {})
    if not _needs_zig():
        yield settings
        return
    import ziglang

    system = os.environ.get("RELQUERY_ZIG")
    zig = Path(ziglang.__file__).parent / ("zig.exe" if sys.platform == "win32" else "zig")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CXX"] = str(
            _script(folder, "zig-c++", [zig, "c++", *(["-target", system] if system else [])])
        )
        defined = {
            "RELQUERY_ZIG": "ON",
            "CMAKE_AR": _script(folder, "zig-ar", [zig, "ar"]),
            "CMAKE_RANLIB": _script(folder, "zig-ranlib", [zig, "ranlib"]),
        }
        yield settings | {f"cmake.define.{name}": str(value) for name, value in defined.items()}


def _script(folder: str, name: str, command: list[str | Path]) -> Path:
    words = " ".join(f'"{word}"' for word in command)
    if sys.platform == "win32":
        path = Path(folder) / f"{name}.cmd"
        path.write_text(f"@{words} %*\n")
        return path
    path = Path(folder) / name
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)
    return path
