"""The ledger keeps whole answers, and tells every two questions apart."""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

import pytest

from relquery.backends.base import Backend, LazyBackend
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, LedgerWarning
from relquery.ledger import Keys, Ledger, answer_keys, has_one_answer, save_copies
from relquery.ledger import claims as patience
from relquery.ledger.records import RecordFilter, opened, prune
from relquery.prompt import Answer, Compared, Finish, Prompt, Reuse, Role, Sampling, Span

GREEDY = Sampling()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with closing(Ledger.open()) as memo:
        yield memo


def test_an_answer_comes_back_as_it_was_except_that_nothing_was_attempted(ledger: Ledger) -> None:
    texts = ["Yes", "", "a\0b", "🎉", "\ud83c half", "0", *map(str, range(2000))]
    keys = [f"k{at}".encode() for at in range(len(texts))]
    answers = [Answer(text, Finish.STOP, None, 5, 3, 2) for text in texts]
    ledger.put(zip(keys, answers, strict=True))
    expected = [replace(answer, cached_tokens=0, attempts=0) for answer in answers]
    assert ledger.get([*keys, b"other"]) == dict(zip(keys, expected, strict=True))


def test_what_is_no_whole_answer_is_not_kept(ledger: Ledger) -> None:
    answers = [
        Answer("cut", Finish.LENGTH),
        Answer(None, Finish.ERROR, "failed"),
        Answer(None, Finish.CANCELLED),
        Answer("text", Finish.STOP, "but wrong"),
    ]
    for answer in answers:
        ledger.put([(b"k", answer)])
        assert ledger.get([b"k"]) == {}


def test_marked_keys_keep_answers_to_the_same_prompts_apart(ledger: Ledger) -> None:
    prompts = [(Span(text),) for text in "abc"]
    sampling = Compared.by(GREEDY, ("Yes",))
    plain = Keys.of("m", prompts, sampling)
    one, other = plain.marked("one"), plain.marked("other")
    keys = [*plain.whole, *plain.decided, *one.whole, *one.decided, *other.whole, *other.decided]
    assert len(set(keys)) == 18
    assert plain.part([2, 0]).marked("one") == one.part([2, 0])
    ledger.put([one.entry(1, Answer("b", Finish.STOP)), one.entry(2, Answer("N", Finish.DECIDED))])
    assert {at: answer.text for at, answer in ledger.find(one).items()} == {1: "b", 2: "N"}
    assert ledger.find(plain) == ledger.find(other) == {}


def test_answers_that_are_stored_again_are_not_counted_again(path: Path) -> None:
    with closing(Ledger.open(path)) as ledger:
        answer, failed = Answer("a", Finish.STOP), Answer(None, Finish.ERROR, "x")
        ledger.put([(b"k", answer)])
        save_copies(ledger, [(b"l", answer), (b"m", failed)])
        assert (ledger.stored, set(ledger.get([b"k", b"l", b"m"]))) == (1, {b"k", b"l"})
        ledger.connection.execute("PRAGMA query_only = ON")
        with pytest.warns(LedgerWarning, match="could not be stored again"):
            save_copies(ledger, [(b"n", answer)])


def test_whatever_differs_in_a_question_gives_another_key() -> None:
    prompts = [
        (Span("ab"),),
        (Span("a"), Span("b")),
        (Span("a"), Span("b", begins=True)),
        (Span("ab", Role.SYSTEM),),
        (Span("ab", reuse=Reuse.INDEPENDENT),),
        (Span("ab", position=3),),
        (Span((1, 2)),),
        (Span("(1, 2)"),),
        (Span("a\0"), Span("b")),
        (Span("a"), Span("\0b")),
    ]
    samplings = [GREEDY, Sampling(max_tokens=7), Sampling(labels=("a",)), Sampling(stop=("a",))]
    keys = [
        key
        for model, sampling in itertools.product(["m", "n"], samplings)
        for key in answer_keys(model, prompts, sampling)
    ]
    assert len(set(keys)) == len(keys) == 80
    again = answer_keys("m", [(Span("".join(["a", "b"])),)], GREEDY)
    assert again == keys[:1], "a key depends on the text alone and not on objects"


# Ledgers of earlier versions: written here as these wrote them.


def earlier_key(model: str, prompt: Prompt, sampling: Sampling) -> bytes:
    """A key as the first version made it, text spans only."""
    names = ["max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "labels"]
    names += ["texts"] * isinstance(sampling, Compared)
    settings = tuple(getattr(sampling, name) for name in names)
    digest = hashlib.sha256(repr((model, settings)).encode())
    for span in prompt:
        data = str(span.content).encode("utf-8", "surrogatepass")
        head = f"{span.role.value} {span.reuse.value} {span.position} str {len(data)} "
        digest.update(head.encode() + data)
    return digest.digest()


def write_earlier(path: Path, answers: dict[bytes, str]) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(
            "CREATE TABLE answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, "
            "prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL) WITHOUT ROWID"
        )
        rows = [(key, text, 5, 2) for key, text in answers.items()]
        file.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", rows)


def test_a_schema_and_log_probabilities_are_part_of_the_key_and_the_latter_are_not_kept() -> None:
    number, text = '{"type": "integer"}', '{"type": "string"}'
    samplings = [Sampling(), Sampling(schema=number), Sampling(schema=text)]
    samplings += [Compared.by(sampling, ("1",)) for sampling in samplings]
    samplings += [Sampling(logprobs=0), Sampling(logprobs=5)]
    keys = [key for one in samplings for key in answer_keys("m", [(Span("x"),)], one)]
    assert len(set(keys)) == 8
    assert [has_one_answer(one) for one in samplings] == [True] * 6 + [False] * 2
    assert answer_keys("m", [(Span("x"),)], Sampling(logprobs=None)) == keys[:1]


SCORED = Sampling(labels=("Yes", "No"), scored=True)
SCORES = {"Yes": -0.25, "No": float("-inf"), "\ud800": -1e-300}


def test_scores_are_stored_with_the_answer_where_they_are_asked_for(path: Path) -> None:
    answer = Answer("Yes", Finish.STOP, prompt_tokens=5, output_tokens=1, scores=SCORES)
    prompts = [(Span("x"),), (Span("y"),)]
    with closing(Ledger.open(path)) as ledger:
        unasked = Keys.of("m", [(Span("x"),)], Sampling(labels=("Yes", "No")))
        ledger.put([unasked.entry(0, answer)])
        assert ledger.find(unasked)[0].scores is None
        tables = ledger.connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert tables == [("answers",)]
        keys = Keys.of("m", prompts, SCORED)
        ledger.put([keys.entry(0, answer), keys.entry(1, replace(answer, scores=None))])
    with closing(Ledger.open(path)) as ledger:
        found = ledger.find(keys)
    assert found == {0: replace(answer, attempts=0), 1: replace(answer, attempts=0, scores=None)}
    assert found[0].scores == SCORES


def test_a_file_of_the_first_version_takes_scores_and_works_with_it(path: Path) -> None:
    write_earlier(path, {b"old": "No"})
    with closing(Ledger.open(path)) as ledger:
        ledger.put([(b"new", Answer("Yes", Finish.STOP, scores=SCORES))])
        assert {key: answer.scores for key, answer in ledger.get([b"old", b"new"]).items()} == {
            b"old": None,
            b"new": SCORES,
        }
    with closing(sqlite3.connect(path)) as file, file:  # as the first version does
        read = file.execute("SELECT key, text, prompt_tokens, output_tokens FROM answers")
        assert sorted(read.fetchall()) == [(b"new", "Yes", 0, 0), (b"old", "No", 5, 2)]
        file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (b"more", "No", 1, 1))
    with closing(Ledger.open(path)) as ledger:
        assert len(ledger.get([b"old", b"new", b"more"])) == 3


@dataclass
class Known(Backend):
    """A backend that notes its prompts. identity: what ledgers know its model by."""

    name: str = ""
    identity: tuple[str, ...] = ()
    asked: list[Prompt] = field(default_factory=list)

    def known_as(self) -> tuple[str, ...]:
        return self.identity or super().known_as()

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        self.asked += prompts
        for index, _ in enumerate(prompts):
            yield index, Answer("new", Finish.STOP)

    def close(self) -> None:
        pass


QUERY = "SELECT LLM('up', id) AS up FROM (VALUES (1), (2), (3)) t(id)"


def rows_of(con: Connection) -> list[str]:
    return sorted(row[0] for row in con.sql(QUERY).fetchall())


def earlier_ledger(path: Path, model: str) -> None:
    """Knows the first two of QUERY's answers, given by a model of this name."""
    prompts = Known(model)
    with connect(prompts, ledger=None, order="original") as con:
        rows_of(con)
    first = prompts.asked[:2]
    write_earlier(path, {earlier_key(model, prompt, GREEDY): "old" for prompt in first})


@pytest.mark.parametrize(
    ("model", "identity", "asked"),
    [
        ("openai:m@localhost:8000", (), 1),
        ("m@old", ("sha256:1", "m@old"), 1),
        ("m@old", ("sha256:1",), 3),
        ("m@old", ("sha256:1", "m@other"), 3),
    ],
)
def test_a_ledger_of_the_first_version_answers_where_its_name_means_the_same_model(
    path: Path, model: str, identity: tuple[str, ...], asked: int
) -> None:
    earlier_ledger(path, model)
    for count in (asked, 0):
        backend = Known(model, identity)
        with connect(backend, ledger=path) as con:
            found = con.sql(f"EXPLAIN {QUERY}").fetchall()
            assert rows_of(con) == sorted(["new"] * asked + ["old"] * (3 - asked))
        assert len(backend.asked) == count
        assert str(3 - count) in str(found)


def test_a_new_ledger_knows_a_model_by_its_first_name_alone(path: Path) -> None:
    for backend in (Known("m@old"), Known("m@new", ("sha256:1", "m@old"))):
        with connect(backend, ledger=path) as con:
            rows_of(con)
        assert len(backend.asked) == 3
    assert LazyBackend(lambda: Known("m", ("x", "y"))).known_as() == ("x", "y")
    assert LazyBackend(lambda: Known("m")).known_as() == ("m",)


def test_a_file_of_another_form_or_a_newer_version_is_refused(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "newer.db").close()
    for name, statement, why in (
        ("other.db", "CREATE TABLE answers (question, reply)", "cannot be opened: no such column"),
        ("newer.db", "PRAGMA user_version = 3", "newer relquery"),
    ):
        with closing(sqlite3.connect(tmp_path / name)) as file:
            file.execute(statement)
        with pytest.raises(ConfigError, match=why):
            Ledger.open(tmp_path / name)


def test_a_file_that_is_damaged_is_an_error_with_a_remedy(path: Path) -> None:
    with closing(Ledger.open(path)) as ledger:
        ledger.put((bytes([n]) * 32, Answer("x" * 500, Finish.STOP)) for n in range(200))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with (
        closing(Ledger.open(path)) as ledger,
        pytest.raises(ConfigError, match=r"cannot be read: .* Move the file away"),
    ):
        ledger.get([bytes([n]) * 32 for n in range(200)])


@pytest.mark.parametrize("held", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_file_that_another_is_making_is_waited_for(path: Path, held: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE something (x)")
        other.execute(held)
        other.execute("SELECT * FROM something").fetchall()
        release = Timer(0.3, other.execute, ["COMMIT"])
        release.start()
        with closing(Ledger.open(path)) as ledger:
            ledger.put([(b"k", Answer("x", Finish.STOP))])
            assert ledger.has_answers
        release.join()


def test_a_file_that_stays_locked_is_told_of_and_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "_TOLD_SECONDS", 0.1)
    monkeypatch.setattr(patience, "_MOST_SECONDS", 0.6)
    monkeypatch.setattr(patience, "_AGAIN_SECONDS", 0.05)
    with (
        closing(Ledger.open(path)) as ledger,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN EXCLUSIVE")
        for most in (1.2, 0.4):  # what was waited for in vain is not waited for as long again
            began = time.monotonic()
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                ledger.put([(b"k", Answer("x", Finish.STOP))])
            assert time.monotonic() - began < most
        told = [each.getMessage() for each in caplog.records if each.name == "relquery"]
        assert [each[:38] for each in told] == ["Another program has locked the ledger."]
        other.execute("COMMIT")
        ledger.put([(b"k", Answer("x", Finish.STOP))])
        assert ledger.has_answers


@contextmanager
def nobody() -> Iterator[None]:
    """A block in which the user may not write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o777), (0o666, 0o555), (0o444, 0o555)])
def test_a_ledger_that_can_only_be_read_says_that_it_stores_none(file: int, folder: int) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "kept" / "answers?.db"
        path.parent.mkdir()
        with connect(Known("m"), ledger=path) as con:
            rows_of(con)
        Path(name).chmod(0o777)
        path.chmod(file)
        path.parent.chmod(folder)
        backend = Known("m")
        with nobody():
            with pytest.warns(LedgerWarning, match="can only be read") as warned:
                con = connect(backend, ledger=path)
            with con:
                rows_of(con)
                assert not backend.asked
                con.sql("SELECT LLM('New?', a := 1 + 0)")
            assert len(backend.asked) == len(warned) == 1
            with (
                pytest.warns(LedgerWarning, match="can only be read"),
                pytest.raises(ConfigError, match="cannot be pruned: attempt to write a readonly"),
            ):
                prune(path, RecordFilter())
            with opened(path) as kept:
                assert len(kept.entries(RecordFilter())) == 3
        path.parent.chmod(0o777)
