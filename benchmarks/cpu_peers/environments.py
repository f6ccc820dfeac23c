"""The peers and the environments that they run in, made where they are missing."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Say
from benchmarks.peers.environments import environment

OPENVINO, LLAMA_CPP = "openvino", "llama.cpp"
"""As worker.py names them."""
_SOURCE = "llama-cpp-python==0.3.36"
_SERVER = Path("build/bin/llama-server")
"""Within its environment; worker.py starts it."""
_BUILD = (
    "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine. packages: what its environment has, in the order of their installation."""

    name: str
    title: str
    packages: tuple[str, ...]


PEERS = (
    Peer(OPENVINO, "OpenVINO", ("openvino-genai==2026.4.1",)),
    Peer(LLAMA_CPP, "llama.cpp", ("cmake", "ninja", "scikit-build-core", "pyproject-metadata")),
)


def pythons(folder: Path, say: Say) -> dict[str, Path]:
    """The Python of each peer's environment, in a folder."""
    interpreters = {
        peer.name: environment(folder / peer.name, peer.title, peer.packages, say) for peer in PEERS
    }
    build_server(folder.absolute() / LLAMA_CPP, say)
    return interpreters


def build_server(folder: Path, say: Say) -> None:
    """Build llama.cpp's server in its environment, for this processor, where it is missing.

    No package has the server. The source of its Python binding has all of llama.cpp.
    """
    if (folder / _SERVER).exists():
        return
    say("building llama.cpp's server from source; this takes a quarter of an hour on two cores")
    programs = folder / "bin"
    with TemporaryDirectory(dir=folder) as temporary:
        source = Path(temporary)
        fetch = ("-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:")
        here = ("--no-build-isolation", "--dest", temporary, _SOURCE)
        subprocess.run([str(programs / "python"), *fetch, *here], check=True)
        (archive,) = source.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(source, filter="data")
        (code,) = source.glob("*/vendor/llama.cpp")
        cmake, ninja = str(programs / "cmake"), f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}"
        built = folder / _SERVER.parts[0]
        made = ("-S", str(code), "-B", str(built), "-G", "Ninja", ninja, *_BUILD)
        subprocess.run([cmake, *made], check=True, stdout=subprocess.DEVNULL)
        target = ("--build", str(built), "--target", "llama-server")
        subprocess.run([cmake, *target], check=True, stdout=subprocess.DEVNULL)
