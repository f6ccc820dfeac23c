"""The package as people get it: a wheel for any Linux, installed where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_BYTES = 7_000_000  # 4.1 million of them are the demo model's weights, 0.6 the extension
PYTHONS = {"3.11": "3.11", "3.12": "3.12", "3.13": "3.12"}
"""By the Python that it is installed for, the one that it is built with."""

pytestmark = [
    pytest.mark.network,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="scripts/wheel builds for Linux"),
]


def interpreter(version: str) -> str:
    """A Python of a version; skips the test if there is none."""
    found = shutil.which(f"python{version}")
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    for path in (found, *map(str, kept)):
        if path is None:
            continue
        asked = subprocess.run([path, "--version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return path
    pytest.skip(f"there is no Python {version}")


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    """By the Python that built them."""
    return {}


def wheel_of(version: str, wheels: dict[str, Path]) -> Path:
    if version not in wheels:
        folder = ROOT / "dist"
        before = {each: each.stat().st_mtime_ns for each in folder.glob("*.whl")}
        _run("scripts/wheel", PYTHON=interpreter(version))
        new = [e for e in folder.glob("*.whl") if before.get(e) != e.stat().st_mtime_ns]
        (wheels[version],) = new
    return wheels[version]


def _run(*command: str, **environment: str) -> str:
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_runs_in_an_environment_of_its_own(
    version: str, wheels: dict[str, Path], tmp_path: Path
) -> None:
    wheel = wheel_of(PYTHONS[version], wheels)
    assert wheel.stat().st_size < MOST_BYTES
    assert "manylinux_2_28" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    (weights,) = (name for name in names if name.endswith(".safetensors"))
    assert weights.endswith("demo/model/model.safetensors")
    assert {name.split("/")[0].split("-")[0] for name in names} == {"relquery"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".cpp", ".hpp"))]

    _run(interpreter(version), "-m", "venv", str(tmp_path / "env"))
    python = tmp_path / "env" / "bin" / "python"
    _run(str(python), "-m", "pip", "install", "--quiet", "--no-compile", str(wheel))
    code = (
        "import relquery; con = relquery.connect('openai:m', api_key='none'); "
        "print(relquery.__version__, con.sql('SELECT 6 * 7').fetchall()); "
        "from relquery import native; print(native.targets()); "
        "print(relquery.reorder({'a': ['x', 'y', 'x'], 'b': ['p', 'p', 'q']}).rows.tolist())"
    )
    told = _run(str(python), "-W", "error", "-c", code)
    assert "[(42,)]" in told
    assert "'v2', 'v3'" in told or "arm64" in told
    query = "SELECT count(*) AS films FROM movies"
    command = (str(python.with_name("relquery")), "sql", query, "-t", "movies=demo:movies")
    assert "films" in _run(*command, "-f", "csv")
