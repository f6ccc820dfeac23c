"""The compiled module, built in the source tree where it is not there. Imports nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

PACKAGE = Path(__file__).parents[2] / "src" / "relquery"
NEEDED = "a C++20 compiler, Python's headers, and the packages cmake, ninja and nanobind"


def ready_package() -> None:
    """Make `relquery` importable from the source tree. Raises SystemExit if it cannot be built."""
    sys.path.insert(0, str(PACKAGE.parent))
    if find_spec("relquery._native") is not None:
        return
    with TemporaryDirectory() as folder:
        where = [f"-DPython_EXECUTABLE={sys.executable}", "-DRELQUERY_TARGETS=host"]
        commands = (
            ["cmake", "-S", str(PACKAGE / "native"), "-B", folder, "-G", "Ninja", *where],
            ["cmake", "--build", folder, "-j", str(os.cpu_count() or 2)],
        )
        for command in commands:
            try:
                subprocess.run(command, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise SystemExit(
                    f"relquery's compiled module could not be built ({error}). It needs {NEEDED}. "
                    "Or build a wheel elsewhere with scripts/wheel, and copy the _native file "
                    f"from it to {PACKAGE}."
                ) from error
        for built in Path(folder).glob("_native.*"):
            if built.suffix == ".so":
                copy(built, PACKAGE)
    invalidate_caches()
