"""Indexes are kept, found again, made again when anything changed, and never trusted if damaged."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

from relquery.errors import ConfigError
from relquery.retrieval.corpus import distinct_texts
from relquery.retrieval.shelf import Shelf
from tests.retrieval.fakes import Letters

TEXTS = distinct_texts(pa.chunked_array([["the tower", "the bridge", "the tower", None, ""]]))
OTHERS = distinct_texts(pa.chunked_array([["the bridge", "a castle"]]))


def found(shelf: Shelf, texts: pa.Array, question: str = "tower bridge castle") -> list[str]:
    corpus = shelf.corpus("docs", texts)
    (hits,) = corpus.search([question], 9)
    return list(corpus.texts.take(pa.array(hits.texts)).to_pylist())


def test_equal_texts_are_once_in_a_corpus_and_empty_ones_not_at_all() -> None:
    assert TEXTS.to_pylist() == ["the tower", "the bridge"]


def test_a_corpus_is_indexed_once_in_memory() -> None:
    shelf = Shelf.open()
    assert found(shelf, TEXTS) == found(shelf, TEXTS)
    assert shelf.made == 1


def test_another_program_finds_an_index_without_work(tmp_path: Path) -> None:
    first = Shelf.open(tmp_path)
    expected = found(first, TEXTS)
    second = Shelf.open(tmp_path)
    assert found(second, TEXTS) == expected
    assert (first.made, second.made) == (1, 0)


def test_changed_texts_are_indexed_anew(tmp_path: Path) -> None:
    found(Shelf.open(tmp_path), TEXTS)
    shelf = Shelf.open(tmp_path)
    assert found(shelf, OTHERS) == ["a castle", "the bridge"]
    assert found(shelf, TEXTS) == ["the tower", "the bridge"]
    assert shelf.made == 2


def test_texts_in_another_order_are_other_texts(tmp_path: Path) -> None:
    found(Shelf.open(tmp_path), TEXTS)
    shelf = Shelf.open(tmp_path)
    assert found(shelf, TEXTS[::-1]) == ["the bridge", "the tower"]
    assert shelf.made == 1


def test_another_embedder_does_not_use_the_index(tmp_path: Path) -> None:
    found(Shelf.open(tmp_path), TEXTS)
    for version in "12":
        embedder = Letters(version)
        found(Shelf.open(tmp_path, embedder), TEXTS)
        assert embedder.asked[:2] == ["the tower", "the bridge"]


def test_kept_vectors_of_unchanged_texts_are_reused(tmp_path: Path) -> None:
    found(Shelf.open(tmp_path, Letters()), TEXTS)
    embedder = Letters()
    found(Shelf.open(tmp_path, embedder), OTHERS)
    assert embedder.asked == ["a castle", "tower bridge castle"]


@pytest.mark.parametrize("embedder", [None, Letters()])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_file_cut_short_is_made_again(
    tmp_path: Path, embedder: Letters | None, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    expected = found(Shelf.open(tmp_path, embedder), TEXTS)
    (file,) = tmp_path.iterdir()
    os.truncate(file, int(share * file.stat().st_size))
    shelf = Shelf.open(tmp_path, embedder)
    assert found(shelf, TEXTS) == expected
    assert shelf.made == 1
    assert "is damaged and will be made again" in caplog.text
    assert found(Shelf.open(tmp_path, embedder), TEXTS) == expected


def test_flipped_bytes_are_never_read_as_an_index(tmp_path: Path) -> None:
    expected = found(Shelf.open(tmp_path), TEXTS)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        assert found(Shelf.open(tmp_path), TEXTS) == expected


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        Shelf.open(tmp_path / "file")


def test_nothing_is_left_beside_the_index(tmp_path: Path) -> None:
    found(Shelf.open(tmp_path), TEXTS)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def test_names_that_differ_in_punctuation_have_files_of_their_own(tmp_path: Path) -> None:
    shelf = Shelf.open(tmp_path)
    for name in ["a.b", "a_b", "a/b", "ä" * 300]:
        shelf.corpus(name, TEXTS)
    assert len(list(tmp_path.iterdir())) == 4
