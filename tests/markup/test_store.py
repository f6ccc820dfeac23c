"""States of modules outlive the cache and the process, and a damaged file is computed again."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.connection import connect
from relquery.errors import ConfigError
from relquery.markup.schema import Schema
from relquery.markup.schemas import PromptResult
from relquery.model.store import StateFiles
from relquery.prompt import Sampling

MODEL = "random:layers=2,hidden=32,heads=2,ffn=32,context=2048"
SCHEMA = Schema.parse(
    "<schema name='s'>Read this."
    "<module name='a'>The first of two modules, with a few blocks. </module>"
    "<module name='b'>The second <param name='what' len='8'/> of two modules. </module></schema>"
)
LIMIT = 60_000
"""Bytes: more than what one model's states take, and less than what two models' take."""
PROMPT = "<prompt schema='s'><a/><b what='one'/>Which?</prompt>"


def ask(prompt: str = PROMPT, **options: object) -> PromptResult:
    """The answer of a process of its own, as far as what it keeps goes."""
    with connect(MODEL, **options) as con:  # type: ignore[arg-type]
        con.register(SCHEMA)
        return con.prompt(prompt, max_tokens=6)


def cached(result: PromptResult) -> dict[str, tuple[int, int]]:
    return {used.name: (used.tokens, used.cached) for used in result.used}


def test_a_restart_finds_the_states_of_modules_on_disk(tmp_path: Path) -> None:
    plain = ask()
    first, second = (ask(store=tmp_path / "store") for _ in range(2))
    assert plain.text == first.text == second.text
    assert first.answer.cached_tokens == 0
    found = cached(second)
    assert [found[name][0] - found[name][1] for name in ("schema", "a", "b")] == [0, 0, 0]
    other = ask("<prompt schema='s'><b/>Why?</prompt>", store=tmp_path / "store")
    assert cached(other)["b"][0] == cached(other)["b"][1] > 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PromptResult]:
    """A folder with the states of SCHEMA, and the answer that they gave."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, ask(store=folder)


@pytest.fixture
def stored(tmp_path: Path, kept: tuple[Path, PromptResult]) -> list[Path]:
    """The files of such a folder, to be damaged."""
    shutil.copytree(kept[0], tmp_path, dirs_exist_ok=True)
    return sorted(tmp_path.rglob("*.safetensors"))


def assert_computed_again(folder: Path, kept: tuple[Path, PromptResult]) -> PromptResult:
    again = ask(store=folder)
    assert (again.text, again.answer.cached_tokens) == (kept[1].text, 0)
    return again


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _alter(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def _swap_header(content: bytes) -> bytes:
    return content.replace(b'"k0"', b'"k9"')


def _lengthen(content: bytes) -> bytes:
    return content + b"x"


def _with_header(header: bytes) -> Callable[[bytes], bytes]:
    return lambda content: len(header).to_bytes(8, "little") + header


ODD_HEADERS = [b"5", b"null", b'"x"', b"NaN", b"[]", b"[" * 5_000, b'{"__metadata__": 3}']
ODD_HEADERS += [b'{"__metadata__": {"digest": ""}}', b'{"__metadata__": {"digest": 0}, "k0": 1}']


@pytest.mark.parametrize(
    "damage",
    [_cut, _alter, _swap_header, _lengthen, lambda content: b"", _with_header(ODD_HEADERS[0])]
    + [pytest.param(_with_header(odd), marks=pytest.mark.long) for odd in ODD_HEADERS[1:]],
)
def test_a_damaged_file_is_computed_again_and_replaced(
    tmp_path: Path,
    kept: tuple[Path, PromptResult],
    stored: list[Path],
    damage: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = stored
    whole = [file.read_bytes() for file in files]
    assert len(files) == 5  # a text for each piece: what is around a parameter is in several
    for file, content in zip(files, whole, strict=True):
        file.write_bytes(damage(content))
    again = assert_computed_again(tmp_path, kept)
    warned = {record.args for record in caplog.records if record.levelno >= logging.WARNING}
    assert warned == {(file,) for file in files}
    assert {(used.cached, used.sources) for used in again.used} == {(0, ())}
    assert [file.read_bytes() for file in files] == whole


def _claim_to_be_huge(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(1 << 42)


def _replace_by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.unlink()
        make(file)

    return change


@pytest.mark.parametrize(
    "change", [_claim_to_be_huge, _replace_by(os.mkfifo), _replace_by(os.mkdir)]
)
def test_what_is_huge_or_no_file_is_not_read(
    tmp_path: Path,
    kept: tuple[Path, PromptResult],
    stored: list[Path],
    change: Callable[[Path], None],
) -> None:
    for file in stored:
        change(file)
    assert_computed_again(tmp_path, kept)


def test_a_whole_file_under_another_name_is_not_believed(
    tmp_path: Path, kept: tuple[Path, PromptResult], stored: list[Path]
) -> None:
    whole = [file.read_bytes() for file in stored]
    for file, content in zip(stored, [*whole[1:], whole[0]], strict=True):
        file.write_bytes(content)
    assert_computed_again(tmp_path, kept)
    assert [file.read_bytes() for file in stored] == whole


def test_a_file_of_another_model_is_not_believed(
    tmp_path: Path, kept: tuple[Path, PromptResult], stored: list[Path]
) -> None:
    with connect(MODEL + ",seed=5", store=tmp_path / "other") as con:
        con.register(SCHEMA)
        con.prompt(PROMPT, max_tokens=6)
    others = sorted((tmp_path / "other").rglob("*.safetensors"))
    assert [file.name for file in stored] == [file.name for file in others]
    for file, other in zip(stored, others, strict=True):
        file.write_bytes(other.read_bytes())
    shutil.rmtree(tmp_path / "other")
    assert_computed_again(tmp_path, kept)


def test_states_of_another_model_or_dtype_are_not_used(tmp_path: Path) -> None:
    ask(store=tmp_path)
    assert ask(store=tmp_path, dtype="bfloat16").answer.cached_tokens == 0
    with connect(MODEL + ",seed=5", store=tmp_path) as con:
        con.register(SCHEMA)
        assert con.prompt(PROMPT, max_tokens=6).answer.cached_tokens == 0
    assert ask(store=tmp_path).answer.cached_tokens > 0


def test_states_come_back_from_host_memory_after_the_cache_has_lost_them() -> None:
    others = [f"<prompt schema='s'>{number} {'x' * 300}</prompt>" for number in range(4)]
    for store in ({}, {"store_memory": "1MiB"}):
        with connect(MODEL, cache_tokens=400, **store) as con:  # type: ignore[arg-type]
            con.register(SCHEMA)
            first = con.prompt(PROMPT, max_tokens=6)
            for other in others:
                con.prompt(other, max_tokens=6)
            con.backend.engine.pool.evict(100)  # type: ignore[attr-defined]
            second = con.prompt(PROMPT, max_tokens=6)
            assert second.text == first.text
            assert (second.answer.cached_tokens > 0) == bool(store)


def test_the_folder_takes_no_more_than_it_may(tmp_path: Path) -> None:
    ask(store=tmp_path, store_disk="20KiB")
    files = list(tmp_path.rglob("*.safetensors"))
    assert 0 < sum(file.stat().st_size for file in files) <= 20 * 1024


def test_all_models_together_take_no_more_than_they_may(tmp_path: Path) -> None:
    left = tmp_path / "store" / "another" / "key.1.part"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a process that was killed")
    os.utime(left, (0, 0))
    for seed in range(3):
        with connect(f"{MODEL},seed={seed}", store=tmp_path / "store", store_disk=LIMIT) as con:
            con.register(SCHEMA)
            con.prompt(PROMPT, max_tokens=1)
    sizes = [file.stat().st_size for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert LIMIT / 2 < sum(sizes) <= LIMIT
    assert not left.exists()


def test_a_folder_that_cannot_be_written_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(StateFiles, "__init__", refuse)
    with pytest.raises(ConfigError, match="cannot be written to: Permission denied"):
        ask(store=tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    for store in ("/dev/null/x", "", " ", "a\0b", "x" * 5000, "~nobody-here/x"):
        with pytest.raises(ConfigError, match="store is"):
            connect(MODEL, store=store)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="must be a folder"):
        connect(MODEL, store=tmp_path / "file")


@pytest.mark.parametrize("memory", ["1GiB", 1])
def test_states_come_from_disk_again_and_again(tmp_path: Path, memory: str | int) -> None:
    expected = ask()
    with connect(MODEL, store=tmp_path, store_memory=memory) as con:
        con.register(SCHEMA, prepare=True)
        pool = cast(EmbeddedBackend, con.backend).engine.pool
        for number in range(3):
            pool.evict(pool.total)
            result = con.prompt(PROMPT, max_tokens=6)
            sources = {source for used in result.used for source in used.sources}
            assert sources == {"disk" if memory == 1 else "memory"}, number
            assert result.text == expected.text


def test_modules_that_are_evicted_while_a_request_waits_are_computed_again() -> None:
    expected = ask()
    with connect(MODEL) as con:
        con.register(SCHEMA, prepare=True)
        backend = cast(EmbeddedBackend, con.backend)
        prompt, _ = con.schemas.lower(PROMPT)
        stream = backend.answer([prompt], Sampling(max_tokens=6))
        backend.engine.pool.evict(backend.engine.pool.total)
        answers = list(stream)
        assert [answer.text for _, answer in answers] == [expected.text]
        assert answers[0][1].cached_tokens == 0


_SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from tests.markup.test_store import ask, PROMPT
for number in range(6):
    print(ask(store={store!r}, store_disk={most}).text.encode())
"""


@pytest.mark.long
def test_processes_that_share_a_folder_do_not_harm_each_other(tmp_path: Path) -> None:
    expected = ask(store=tmp_path).text.encode()
    most = sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors")) // 2
    root = str(Path(__file__).parents[2])
    script = _SCRIPT.format(root=root, store=str(tmp_path), most=most)
    sides = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for side in sides:
        said, _ = side.communicate(timeout=120)
        assert (side.returncode, said.split("\n")[:-1]) == (0, [str(expected)] * 6)
    assert not list(tmp_path.rglob("*.part"))
