"""What every test runs under, and what the quick run leaves out.

The quick run has no test marked `long`; `--all` has. A file that is long as a whole says so in a
line `pytestmark = pytest.mark.long` and is then not even imported. What is named on the command
line, a file or a test, always runs.

Hypothesis tries the same examples in every run; `--hypothesis-profile=explore` tries others.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from relquery.config import DEFAULT_FORM

TESTS = Path(__file__).parent
LONG_FOLDERS = {"benchmarks", "deploy", "pages", "training"}
LONG_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.long\b", re.MULTILINE)

settings.register_profile("quick", derandomize=True, database=None, deadline=None, max_examples=25)
settings.register_profile("all", derandomize=True, database=None, deadline=None, max_examples=300)
settings.register_profile(
    "explore", derandomize=False, print_blob=True, deadline=None, max_examples=300
)

if shutil.which("nvidia-smi") is None:  # without a GPU, Triton's kernels are interpreted
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

os.environ["RELQUERY_CONFIG"] = os.devnull  # prices are those that are shipped

# No test speaks TLS with anybody; reading whom to trust would take each HTTP client 20 ms.
ssl.SSLContext.load_verify_locations = lambda *given, **named: None  # type: ignore[method-assign]

# A shell starts what runs in the background with signals ignored; tests send them to themselves.
HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
}
for sent, handler in HANDLERS.items():
    if signal.getsignal(sent) is signal.SIG_IGN:
        signal.signal(sent, handler)


@pytest.fixture(autouse=True, scope="session")
def json_prompts() -> Iterator[None]:
    """Prompts in JSON where no form is asked for: stand-ins for models read fields from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relquery.backends.load.DEFAULT_FORM", "json")
        yield


@pytest.fixture
def users_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of prompts that users get."""
    monkeypatch.setattr("relquery.backends.load.DEFAULT_FORM", DEFAULT_FORM)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked long, too")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile", None):
        settings.load_profile("all" if config.getoption("--all") else "quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--all") or _is_named(collection_path, config):
        return None
    if collection_path.parent == TESTS and collection_path.name in LONG_FOLDERS:
        return True
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if is_test and LONG_FILE.search(collection_path.read_text(encoding="utf-8")):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    left_out = [
        item
        for item in items
        if item.get_closest_marker("long") and not _is_named(item.path, config)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _is_named(path: Path, config: pytest.Config) -> bool:
    """Whether the command line names a file, a test in it, or a folder of LONG_FOLDERS above it."""
    for arg in config.args:
        named = (config.invocation_params.dir / arg.partition("::")[0]).resolve()
        if named == path:
            return True
        inside = named.relative_to(TESTS).parts if named.is_relative_to(TESTS) else ()
        if inside and inside[0] in LONG_FOLDERS and path.is_relative_to(named):
            return True
    return False
