"""Indexes are kept, found again, made again when anything changed, and never trusted if damaged."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

from relquery.errors import ConfigError, IndexWarning
from relquery.retrieval.corpus import IndexShelf, distinct_texts
from tests.retrieval.fakes import Letters

TEXTS = distinct_texts(pa.chunked_array([["the tower", "the bridge", "the tower", None, ""]]))
OTHERS = distinct_texts(pa.chunked_array([["the bridge", "a castle"]]))


def found(shelf: IndexShelf, texts: pa.Array, question: str = "tower bridge castle") -> list[str]:
    corpus = shelf.corpus("docs", texts)
    (hits,) = corpus.search([question], 9)
    return list(corpus.texts.take(pa.array(hits.texts)).to_pylist())


def test_a_corpus_has_equal_texts_once_and_no_empty_ones_and_is_indexed_once() -> None:
    assert TEXTS.to_pylist() == ["the tower", "the bridge"]
    shelf = IndexShelf.open()
    assert found(shelf, TEXTS) == found(shelf, TEXTS)
    assert shelf.made == 1


def test_another_program_finds_an_index_without_work_and_nothing_beside_it(tmp_path: Path) -> None:
    first = IndexShelf.open(tmp_path)
    expected = found(first, TEXTS)
    second = IndexShelf.open(tmp_path)
    assert found(second, TEXTS) == expected
    assert (first.made, second.made) == (1, 0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def test_changed_or_reordered_texts_are_indexed_anew(tmp_path: Path) -> None:
    found(IndexShelf.open(tmp_path), TEXTS)
    shelf = IndexShelf.open(tmp_path)
    assert found(shelf, OTHERS) == ["a castle", "the bridge"]
    assert found(shelf, TEXTS) == ["the tower", "the bridge"]
    assert shelf.made == 1
    assert found(shelf, TEXTS[::-1]) == ["the bridge", "the tower"]
    assert shelf.made == 2


def test_embedders_that_take_turns_find_their_indexes_again(tmp_path: Path) -> None:
    embedders = Letters("1"), None, Letters("2")
    for _ in range(3):
        for embedder in embedders:
            shelf = IndexShelf.open(tmp_path, embedder)
            found(shelf, TEXTS)
            shelf.close()
    for one in embedders:  # each embeds the texts, once, and the question
        assert one is None or one.asked[:2] == ["the tower", "the bridge"]
        assert one is None or len(one.asked) == 3
    assert shelf.made == 1  # of vectors that are known
    words = IndexShelf.open(tmp_path)
    found(words, TEXTS)
    assert words.made == 0


def test_tables_of_one_name_in_two_databases_find_their_indexes_again(tmp_path: Path) -> None:
    expected = [found(IndexShelf.open(), texts) for texts in (TEXTS, OTHERS)]
    made = 0
    for _ in range(3):
        for texts, rows in zip((TEXTS, OTHERS), expected, strict=True):
            shelf = IndexShelf.open(tmp_path)
            assert found(shelf, texts) == rows
            made += shelf.made
    assert made == 2


def test_files_of_earlier_texts_are_removed_in_the_end(tmp_path: Path) -> None:
    for at in range(20):
        found(IndexShelf.open(tmp_path), pa.array([f"text {at}"], pa.large_string()), "text")
    shelf = IndexShelf.open(tmp_path)
    found(shelf, pa.array(["text 19"], pa.large_string()), "text")
    assert (len(list(tmp_path.iterdir())), shelf.made) == (8, 0)


def test_kept_vectors_of_unchanged_texts_are_reused(tmp_path: Path) -> None:
    found(IndexShelf.open(tmp_path, Letters()), TEXTS)
    embedder = Letters()
    found(IndexShelf.open(tmp_path, embedder), OTHERS)
    assert embedder.asked == ["a castle"]  # the question is known, too


def test_a_file_cut_short_or_with_flipped_bytes_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    expected = found(IndexShelf.open(tmp_path), TEXTS)
    (file,) = tmp_path.iterdir()
    for share in (0.0, 0.3, 0.7, 0.99):
        caplog.clear()
        os.truncate(file, int(share * file.stat().st_size))
        shelf = IndexShelf.open(tmp_path)
        assert found(shelf, TEXTS) == expected
        assert shelf.made == 1
        assert "is damaged and will be made again" in caplog.text
        assert found(IndexShelf.open(tmp_path), TEXTS) == expected
    whole = file.read_bytes()
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        assert found(IndexShelf.open(tmp_path), TEXTS) == expected


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        IndexShelf.open(tmp_path / "file")


def test_an_index_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = found(IndexShelf.open(tmp_path), TEXTS)
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.mkdir()  # cannot be read or replaced, by any user
    with pytest.warns(IndexWarning, match="cannot be written to .* in memory"):
        assert found(IndexShelf.open(tmp_path), TEXTS) == expected
    assert "cannot be read and will be made again" in caplog.text
    assert "damaged" not in caplog.text


def test_names_that_differ_in_punctuation_have_files_of_their_own(tmp_path: Path) -> None:
    shelf = IndexShelf.open(tmp_path)
    for name in ["a.b", "a_b", "a/b", "ä" * 300]:
        shelf.corpus(name, TEXTS)
    assert len(list(tmp_path.iterdir())) == 4
