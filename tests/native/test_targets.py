"""Which instructions the kernels use, and their random cases under sanitizers and emulators."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from relquery import native

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "relquery" / "native"
CASES = str(10_000)
FLAGS = {
    "v2": ["-march=x86-64-v2"],
    "v3": ["-march=x86-64-v3"],
    "v4": ["-march=x86-64-v4"],
    "v4-bf16": ["-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni"],
    "amx": ["-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni", "-mamx-tile", "-mamx-bf16"],
    "arm64": [],
    "arm64-dot": ["-mcpu=generic+dotprod"],
}
ZIG = {
    "x86_64-linux-musl": ("amx", "x86_64_v4+avx512bf16+avx512vnni+amx_tile+amx_bf16+amx_int8"),
    "x86_64-macos": ("v3", "x86_64_v3"),
    "x86_64-windows-gnu": ("v4", "x86_64_v4"),
    "aarch64-macos": ("arm64_dot", "baseline+dotprod"),
    "aarch64-linux-musl": ("arm64", "baseline"),
}
"""A target of each system that wheels are built for, and what zig calls it."""
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def asked(target: str) -> subprocess.CompletedProcess[str]:
    """What a process says whose target is named."""
    code = "from relquery import native; print(native.target())"
    environment = {**os.environ, "RELQUERY_TARGET": target}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_environment_can_choose_less() -> None:
    least = native.targets()[0]
    assert asked(least).stdout.strip() == least
    assert asked("").stdout.strip() == native.targets()[-1]


def test_a_target_that_is_not_here_is_an_error_that_names_those_that_are() -> None:
    said = asked("v9").stderr
    assert "ConfigError: There is no target 'v9'" in said
    assert ", ".join(native.targets()) in said


def compiled(command: Sequence[str], target: str, made: Path) -> Path:
    """The program of random cases for a target."""
    command = [
        *(*command, "-std=c++20", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-pthread"),
        *("-DRELQUERY_TARGET=" + target.replace("-", "_"), "-I", str(SOURCES)),
        *(str(ROOT / "tests/native/kernels.cpp"), str(SOURCES / "kernels/target.cpp")),
        *("-o", str(made)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.mark.long
@needs_gcc
@pytest.mark.parametrize("target", native.targets())
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_random_cases_hold_under_sanitizers(target: str, sanitizers: str, tmp_path: Path) -> None:
    checked = ["g++", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g"]
    program = compiled([*checked, *FLAGS[target]], target, tmp_path / "kernels")
    assert run([str(program), CASES, "1"]) == f"{CASES} cases, 0 failures"


@pytest.mark.long
@needs_gcc
@pytest.mark.parametrize("target", native.targets())
def test_functions_of_a_target_have_names_of_their_own(target: str, tmp_path: Path) -> None:
    """A linker keeps one of several functions of one name; it might keep one that traps here."""
    id = target.replace("-", "_")
    flags = ["-std=c++20", "-O3", "-ffp-contract=fast", f"-DRELQUERY_TARGET={id}", *FLAGS[target]]
    made, source = str(tmp_path / "target.o"), str(SOURCES / "kernels/target.cpp")
    subprocess.run(["g++", *flags, "-I", str(SOURCES), "-c", source, "-o", made], check=True)
    listed = run(["nm", "-C", "--defined-only", made]).splitlines()
    weak = [line.split(maxsplit=2)[2] for line in listed if line.split()[1] in "Wu"]
    assert weak
    assert not [name for name in weak if f"relquery::{id}::" not in name]


@pytest.mark.long
@needs_gcc
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_tests_of_solvers_hold_under_sanitizers(sanitizers: str, tmp_path: Path) -> None:
    build, package = tmp_path / "build", tmp_path / "lib" / "relquery"
    defined = [f"-DRELQUERY_SANITIZE={sanitizers}", f"-DPython_EXECUTABLE={sys.executable}"]
    cmake = str(Path(sys.executable).with_name("cmake"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (
        [cmake, "-S", str(SOURCES), "-B", str(build), "-G", "Ninja", *defined],
        [cmake, "--build", str(build)],
    ):
        subprocess.run(command, check=True, env=environment, capture_output=True)
    package.mkdir(parents=True)
    for each in (ROOT / "src" / "relquery").iterdir():
        if each.suffix != ".so":
            (package / each.name).symlink_to(each)
    (extension,) = build.glob("_native*.so")
    shutil.copy(extension, package)
    library = "libasan.so" if sanitizers.startswith("address") else "libtsan.so"
    # -S: what an editable installation would import instead is left out.
    (packages,) = [path for path in sys.path if path.endswith("site-packages")]
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(package.parent), packages]),
        # The runtime, and what throws: it looks for that when it is loaded.
        "LD_PRELOAD": " ".join(
            run(["g++", f"-print-file-name={each}"]) for each in (library, "libstdc++.so")
        ),
        "ASAN_OPTIONS": "detect_leaks=0",
        # Libraries that are not built for it seem to race: Arrow, tokenizers.
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",
        "OMP_NUM_THREADS": "1",
    }
    tests = [
        "tests/reordering/solvers",
        "tests/reordering/cost",
    ]
    command = [
        sys.executable,
        "-S",
        "-m",
        "pytest",
        *tests,
    ]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


@pytest.fixture(scope="module")
def zig(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """zig's compiler, in an environment of its own."""
    folder = tmp_path_factory.mktemp("zig")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "ziglang"], check=True)
    return [python, "-m", "ziglang", "c++"]


@pytest.mark.long
@pytest.mark.network
@pytest.mark.parametrize("system", ZIG)
def test_kernels_compile_for_every_system(system: str, zig: list[str], tmp_path: Path) -> None:
    target, cpu = ZIG[system]
    made, source = tmp_path / "target.o", str(SOURCES / "kernels/target.cpp")
    flags = ["-target", system, f"-mcpu={cpu}", "-std=c++20", "-O3", "-Wall", "-Wextra", "-Werror"]
    flags += ["-fno-exceptions", "-ffp-contract=fast", f"-DRELQUERY_TARGET={target}"]
    subprocess.run([*zig, *flags, "-I", str(SOURCES), "-c", source, "-o", str(made)], check=True)
    assert made.stat().st_size > 100_000


@pytest.mark.long
@pytest.mark.network
@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="there is no qemu-aarch64")
@pytest.mark.parametrize("target", ["arm64", "arm64-dot"])
def test_random_cases_hold_on_arm(target: str, zig: list[str], tmp_path: Path) -> None:
    system = ["-target", "aarch64-linux-musl", "-static", *FLAGS[target]]
    program = compiled([*zig, *system], target, tmp_path / "kernels")
    assert run(["qemu-aarch64", str(program), CASES, "1"]) == f"{CASES} cases, 0 failures"


def run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
