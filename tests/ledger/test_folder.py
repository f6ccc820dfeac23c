"""A ledger in a folder: attempts find what others have written, and nothing that is half there."""

from __future__ import annotations

import os
from contextlib import closing
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.ledger import Keys, Ledger, saving
from relquery.ledger.folder import SUFFIX, FolderLedger, read_lines
from relquery.prompt import Answer, Compared, Finish, Sampling, Span

PROMPTS = [(Span(f"question {number}"),) for number in range(5)]


NOTHING = Answer("", Finish.STOP)


def _open(folder: Path, attempt: str = "0", task: str = "run-000001") -> FolderLedger:
    return FolderLedger(folder, task, attempt)


def test_another_attempt_finds_the_answers_and_other_tasks_do_not(tmp_path: Path) -> None:
    keys = Keys.of("model", PROMPTS, Sampling())
    with closing(_open(tmp_path)) as first, closing(_open(tmp_path, "1")) as second:
        assert second.find(keys) == {}
        assert not second.has_answers
        first.put([keys.entry(2, Answer("two\nlines \ud800", Finish.STOP, prompt_tokens=7))])
        assert second.has_answers
        found = second.find(keys)
        assert {at: one.text for at, one in found.items()} == {2: "two\nlines \ud800"}
        assert found[2].prompt_tokens == 7
        assert found[2].attempts == 0
        second.put([keys.entry(0, Answer("zero", Finish.STOP))])
        assert set(first.find(keys)) == {0, 2}
        assert _open(tmp_path, task="run-000002").find(keys) == {}


def test_a_line_that_was_cut_is_read_once_it_is_whole(tmp_path: Path) -> None:
    keys = Keys.of("model", PROMPTS, Sampling())
    with closing(_open(tmp_path)) as writer:
        writer.put(keys.entry(at, Answer(f"{at}", Finish.STOP)) for at in range(3))
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    content = path.read_bytes()
    reader = _open(tmp_path, "1")
    for end in range(len(content)):
        path.write_bytes(content[:end])
        found, place = read_lines(path)
        assert len(found) == content[:end].count(b"\n")
        assert content[:place].count(b"\n") == len(found)
        assert len(reader.find(keys)) == len(found)
    path.write_bytes(content)
    assert set(reader.find(keys)) == {0, 1, 2}


def test_answers_that_are_not_whole_are_not_kept(tmp_path: Path) -> None:
    keys = Keys.of("model", PROMPTS, Sampling())
    cut, failed = Answer("cut", Finish.LENGTH), Answer(None, Finish.ERROR, "no")
    with closing(_open(tmp_path)) as ledger:
        ledger.put(keys.entry(at, each) for at, each in enumerate((cut, failed, NOTHING)))
        assert (set(ledger.find(keys)), ledger.stored) == ({2}, 1)


def test_a_folder_that_cannot_be_written_is_told_at_the_end(tmp_path: Path) -> None:
    keys = Keys.of("model", PROMPTS, Sampling())
    with (
        pytest.warns(match="1 answers are not in the ledger"),
        saving(_open(tmp_path / "gone")) as keep,
    ):
        keep(*keys.entry(0, Answer("yes", Finish.STOP)))


def test_half_a_line_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys.of("model", PROMPTS, Sampling())
    write, tries = os.write, iter((True, False))

    def half(file: int, content: bytes) -> int:
        if next(tries):
            return write(file, content[:20])
        raise OSError(28, "No space left on device")

    with closing(_open(tmp_path)) as ledger:
        ledger.put([keys.entry(0, Answer("before", Finish.STOP))])
        with monkeypatch.context() as full:
            full.setattr(os, "write", half)
            with pytest.raises(OSError, match="No space"):
                ledger.put([keys.entry(1, Answer("lost", Finish.STOP))])
        ledger.put([keys.entry(1, Answer("again", Finish.STOP))])
    found = _open(tmp_path, "1").find(keys)
    assert {at: one.text for at, one in found.items()} == {0: "before", 1: "again"}


ANSWERS = st.builds(
    Answer,
    st.text(st.characters(codec=None), max_size=20),
    st.sampled_from((Finish.STOP, Finish.DECIDED, Finish.LENGTH)),
    prompt_tokens=st.integers(0, 99),
    output_tokens=st.integers(0, 99),
    scores=st.none() | st.just({"a": -0.5, "b": -inf}),
)


@given(answers=st.lists(st.tuples(st.integers(0, 4), ANSWERS), max_size=12), scored=st.booleans())
def test_it_finds_what_a_file_finds(
    tmp_path_factory: pytest.TempPathFactory, answers: list[tuple[int, Answer]], scored: bool
) -> None:
    labels = ("a", "b")
    sampling = Sampling(labels=labels, scored=True) if scored else Compared(texts=labels)
    keys = Keys.of("model", PROMPTS, sampling)
    folder = tmp_path_factory.mktemp("ledger")
    with closing(Ledger.open()) as file, closing(_open(folder)) as shared:
        for at, answer in answers:
            if scored and (answer.finish is Finish.DECIDED or answer.scores is None):
                continue
            for one in (file, shared):
                one.put([keys.entry(at, answer)])
        assert shared.find(keys) == file.find(keys)
        assert shared.stored == file.stored
        assert _open(folder, "1").find(keys) == file.find(keys)
