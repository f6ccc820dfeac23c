"""A text is embedded once, whatever fails, is interrupted, is damaged or runs at the same time."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from relquery.arrays import Float32s
from relquery.errors import IndexWarning, RequestError
from relquery.retrieval.vectors import KnownVectors
from tests.retrieval.fakes import Letters

TEXTS = [f"text {chr(97 + at % 26)}{at * at}" for at in range(3000)]


def kept(folder: Path, texts: list[str]) -> tuple[Float32s, Path]:
    """The vectors of texts, and the file that an earlier program has kept them in."""
    vectors = KnownVectors(Letters(), folder)
    found = vectors.of(texts)
    vectors.close()
    (file,) = folder.iterdir()
    return found, file


def test_a_text_is_embedded_once_whatever_is_asked_with_it() -> None:
    embedder = Letters()
    vectors = KnownVectors(embedder)
    first = vectors.of(["ab", "cd", "ab"])
    again = vectors.of(["cd", "ef", "ab"])
    assert embedder.asked == ["ab", "cd", "ef"]
    np.testing.assert_array_equal(first[[1, 0]], again[[0, 2]])


@pytest.mark.parametrize("keeps", [True, False])
def test_more_texts_than_are_at_hand_have_their_vectors(
    monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setattr("relquery.retrieval.vectors._MOST_AT_HAND", 4)
    embedder = Letters()
    vectors = KnownVectors(embedder, keeps=keeps)
    vectors.of(["a", "b", "c"])
    assert vectors.of(["c", "d", "e"]).argmax(axis=1).tolist() == [2, 3, 4]
    assert vectors.of(["a", "b", "c", "d", "e", "f"]).argmax(axis=1).tolist() == [*range(6)]
    assert not keeps or embedder.asked == ["a", "b", "c", "d", "e", "f"]


class Failing(Letters):
    """Fails for some texts until it is mended."""

    def embed(self, texts: Sequence[str]) -> Float32s:
        if self.version == "broken" and TEXTS[-1] in texts:
            raise RequestError("The server answered 500.")
        return Letters.embed(self, texts)

    @property
    def name(self) -> str:
        return "failing"


@pytest.mark.parametrize("in_folder", [True, False])
def test_what_came_before_a_failure_is_not_asked_again(tmp_path: Path, in_folder: bool) -> None:
    embedder = Failing("broken")
    vectors = KnownVectors(embedder, tmp_path if in_folder else None)
    for _ in range(2):
        with pytest.raises(RequestError, match="500"):
            vectors.of(TEXTS)
        assert embedder.asked == TEXTS[:2048]
    if in_folder:
        vectors.close()
        vectors = KnownVectors(embedder, tmp_path)
    embedder.version = "mended"
    np.testing.assert_array_equal(vectors.of(TEXTS), KnownVectors(Letters()).of(TEXTS))
    assert embedder.asked == TEXTS


def test_a_disk_that_is_full_costs_no_vector_and_is_told_once(tmp_path: Path) -> None:
    embedder = Letters()
    vectors = KnownVectors(embedder, tmp_path)
    vectors.of(TEXTS[:10])
    assert vectors._store is not None
    vectors._store.connection.execute("PRAGMA max_page_count = 3")
    with pytest.warns(IndexWarning, match=r"cannot be written to .*letters.*is full") as told:
        vectors.of(TEXTS)
    assert len(told) == 1
    expected = KnownVectors(Letters()).of(TEXTS)
    np.testing.assert_array_equal(vectors.of_distinct(TEXTS), expected)
    assert len(embedder.asked) == len(TEXTS)
    vectors._store.connection.execute("PRAGMA max_page_count = 10000")
    vectors.of(["another"])
    vectors.close()
    np.testing.assert_array_equal(KnownVectors(embedder, tmp_path).of(TEXTS), expected)
    assert embedder.asked == [*TEXTS, "another"]


def test_a_file_that_cannot_be_opened_leaves_the_vectors_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, file = kept(tmp_path, ["a"])
    file.unlink()
    file.mkdir()
    embedder = Letters()
    vectors = KnownVectors(embedder, tmp_path)
    with pytest.warns(IndexWarning, match="cannot be read: unable to open"):
        vectors.of(["a", "b"])
    vectors.of_distinct(["b", "a"])
    assert embedder.asked == ["a", "b"]
    assert "damaged" not in caplog.text


@pytest.mark.parametrize(
    "share", [0.0, 0.6, *(pytest.param(at, marks=pytest.mark.long) for at in (0.01, 0.3, 0.95))]
)
def test_a_file_cut_short_is_made_again(
    tmp_path: Path, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    expected, file = kept(tmp_path, TEXTS)
    os.truncate(file, int(share * file.stat().st_size))
    damaged = KnownVectors(Letters(), tmp_path)
    np.testing.assert_array_equal(damaged.of(TEXTS), expected)
    damaged.close()
    assert share == 0 or "are damaged and will be made again" in caplog.text
    embedder = Letters()
    np.testing.assert_array_equal(KnownVectors(embedder, tmp_path).of(TEXTS), expected)
    assert not embedder.asked


def test_flipped_bytes_never_give_another_vector(tmp_path: Path) -> None:
    texts = TEXTS[:60]
    expected, file = kept(tmp_path, texts)
    whole = file.read_bytes()
    used = [at for at in range(len(whole)) if whole[at]]
    asked = 0
    for at in [*range(100), *used[::23]]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        embedder = Letters()
        damaged = KnownVectors(embedder, tmp_path)
        np.testing.assert_array_equal(damaged.of(texts), expected)
        damaged.close()
        asked += len(embedder.asked)
    assert asked


def test_a_store_that_was_closed_or_removed_is_opened_again(tmp_path: Path) -> None:
    embedder = Letters()
    vectors = KnownVectors(embedder, tmp_path)
    vectors.of(["a"])
    vectors.close()
    vectors.of_distinct(["a", "b"])
    assert embedder.asked == ["a", "b"]
    (file,) = tmp_path.iterdir()
    file.unlink()
    vectors.of(["c"])
    vectors.close()
    later = Letters()
    KnownVectors(later, tmp_path).of(["a", "b", "c"])
    assert later.asked == ["a", "b"]


def test_a_model_of_other_dimensions_is_refused_in_a_later_process_too(tmp_path: Path) -> None:
    class Wider(Letters):
        def embed(self, texts: Sequence[str]) -> Float32s:
            return np.ones((len(texts), 30), np.float32)

    kept(tmp_path, ["a"])
    wider = KnownVectors(Wider(), tmp_path)
    with pytest.raises(RequestError, match=r"30 dimensions, and of 26 before.* in another folder"):
        wider.of(["b"])


PROGRAM = """
import sys, time
from pathlib import Path
from relquery.retrieval import embedder
from relquery.retrieval.vectors import KnownVectors
from tests.retrieval.fakes import Letters
from tests.retrieval.test_known import TEXTS

embedder._AT_ONCE = 50

class Slow(Letters):
    def embed(self, texts):
        with open(sys.argv[2], "a") as file:
            file.writelines(f"{text}\\n" for text in texts)
        time.sleep(0.004)
        return Letters.embed(self, texts)

found = KnownVectors(Slow(), Path(sys.argv[1])).of(TEXTS)
assert (found == KnownVectors(Letters()).of(TEXTS)).all()
"""


def program(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-W", "error", "-c", PROGRAM, folder, log])


@pytest.mark.long
def test_a_killed_process_loses_at_most_what_was_under_way(tmp_path: Path) -> None:
    folder, log = tmp_path / "index", tmp_path / "log"
    folder.mkdir()
    log.touch()
    for _ in range(3):
        begun = len(log.read_text().splitlines())
        running = program(folder, log)
        while len(log.read_text().splitlines()) < begun + 500:
            time.sleep(0.001)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    assert program(folder, log).wait() == 0
    asked = log.read_text().splitlines()
    assert set(asked) == set(TEXTS)
    assert len(asked) <= len(TEXTS) + 50 * 3
    assert program(folder, log).wait() == 0
    assert len(log.read_text().splitlines()) == len(asked)


@pytest.mark.long
def test_two_processes_write_at_once(tmp_path: Path) -> None:
    folder, log = tmp_path / "index", tmp_path / "log"
    folder.mkdir()
    both = [program(folder, log) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    asked = len(log.read_text().splitlines())
    assert program(folder, log).wait() == 0
    assert len(log.read_text().splitlines()) == asked
