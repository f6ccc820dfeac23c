"""The package as people get it: a wheel, installed where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_BYTES = 6_000_000  # 4.1 million of them are the demo model's weights
PYTHONS = ("3.12", "3.13")  # beside the one that runs, for which it is installed

pytestmark = [pytest.mark.network, pytest.mark.long]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_wheel_is_small_and_holds_the_demo_model_alone(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    (weights,) = (name for name in names if name.endswith(".safetensors"))
    assert weights.endswith("demo/model/model.safetensors")
    assert {name.split("/")[0].split("-")[0] for name in names} == {"relquery"}
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    _run(sys.executable, "-m", "venv", str(tmp_path / "env"))
    python = tmp_path / "env" / "bin" / "python"
    _run(str(python), "-m", "pip", "install", "--quiet", "--no-compile", str(wheel))
    code = (
        "import relquery; con = relquery.connect('openai:m', api_key='none'); "
        "print(relquery.__version__, con.sql('SELECT 6 * 7').fetchall())"
    )
    assert "[(42,)]" in _run(str(python), "-W", "error", "-c", code)
    query = "SELECT count(*) AS films FROM movies"
    command = (str(python.with_name("relquery")), "sql", query, "-t", "movies=demo:movies")
    assert "films" in _run(*command, "-f", "csv")


@pytest.mark.parametrize("python", PYTHONS)
def test_all_that_the_wheel_needs_is_there_for_each_python(
    wheel: Path, tmp_path: Path, python: str
) -> None:
    folder = str(tmp_path / "there")
    _run(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--python-version", python,
         "--only-binary=:all:", "--target", folder, str(wheel))  # fmt: skip
