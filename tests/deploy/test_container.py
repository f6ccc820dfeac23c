"""The Dockerfile's steps, without Docker: its build in a fresh environment, and its server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any

import pytest

from tests.deploy.dockerfile import ROOT, Step, read, with_bases
from tests.serve.conftest import free_port

pytestmark = [pytest.mark.network, pytest.mark.long]
STAGES = read()
INSTALLING = 1200.0  # seconds
STOPPING = 60.0


class Container:
    """A folder in place of a container's root. Only what lies below /opt and /var is in it."""

    def __init__(self, root: Path, home: Path) -> None:
        self._root, self._home = root, home
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        }
        self._folder = root

    def here(self, text: str) -> str:
        """A text with paths of this machine."""
        return re.sub(r"(?<![\w.])/(opt|var/lib)\b", rf"{self._root}/\1", text)

    def take(self, step: Step) -> None:
        """Do what an instruction says. USER, and what concerns the image alone, does nothing."""
        match step.word:
            case "ENV":
                for name, value in re.findall(r"(\w+)=(\S+)", step.text):
                    whole = Template(value).safe_substitute(self.environment)
                    self.environment[name] = self.here(whole)
            case "ARG":
                name, _, value = step.text.partition("=")
                self.environment.setdefault(name, value)
            case "WORKDIR":
                self._folder = Path(self.here(step.text))
                self._folder.mkdir(parents=True, exist_ok=True)
            case "COPY" if not step.text.startswith("--from"):
                self._copy(step.words)
            case "RUN":
                self.run("sh", "-c", self.here(step.text))

    def run(self, *command: str) -> None:
        """Raises AssertionError with what a command said if it fails."""
        how: dict[str, Any] = {"cwd": self._folder, "env": self.environment, "text": True}
        ran = subprocess.run(command, capture_output=True, timeout=INSTALLING, check=False, **how)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A process; what it prints can be read."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self._folder, env=self.environment, text=True, **pipes)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, self._folder / target, ignore=ignored, dirs_exist_ok=True)
            else:
                if target.endswith("/"):  # a folder, which need not be there
                    (self._folder / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self._folder / target)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Container:
    """Built up to the stage `build`; then with the settings of the stage `cpu`."""
    root = tmp_path_factory.mktemp("root")
    built = Container(root, tmp_path_factory.mktemp("home"))
    for step in with_bases(STAGES, "build"):
        built.take(step)
    for step in STAGES["cpu"].steps:  # its packages and its user are of the system
        if step.word in ("ENV", "WORKDIR"):
            built.take(step)
    return built


def test_the_built_server_starts_is_healthy_and_stops(container: Container) -> None:
    stage, port = STAGES["cpu"], str(free_port())
    entry, usual = stage.one("ENTRYPOINT").words, stage.one("CMD").words
    program = Path(container.here("/opt/venv/bin")) / entry[0]
    local = [word.replace("0.0.0.0", "127.0.0.1") for word in entry[1:]]
    with container.start(str(program), *local, *usual, "--port", port) as server:
        assert server.stdout is not None
        try:
            said: list[str] = []
            while not (said and said[-1].startswith("Serving ")):
                said.append(server.stdout.readline())
                assert said[-1], f"it has not started: {said}"
            check = [word.replace(":8000/", f":{port}/") for word in stage.healthcheck]
            container.run(*check)
        finally:
            server.send_signal(signal.Signals[stage.one("STOPSIGNAL").text])
            server.stdout.read()
            code = server.wait(STOPPING)
    assert code == 0
    with pytest.raises(AssertionError, match="refused"):
        container.run(*check)
