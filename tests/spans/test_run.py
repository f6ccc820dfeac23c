"""A span query is run from the inside out, and what fails says where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from relquery import span
from relquery.connection import Connection, connect
from relquery.errors import CancelledError, ConfigError, QueryError, RequestError
from relquery.ir.lower import lower
from relquery.ir.nodes import Generate, Node
from relquery.prompt import Answer, Exchange, Finish, Prompt, Reuse, Role, Sampling, Span
from relquery.spans import work as module
from relquery.spans.execute import as_plain
from relquery.spans.run import run
from relquery.spans.work import MAX_DEPTH, SpanResult, unshare
from tests.spans.fakes import Fake

JUDGE = span.generate("judge ", span.plus(span.generate("a"), span.generate("b")), max_tokens=9)


def finish(result: SpanResult) -> Finish:
    assert result.answer is not None
    return result.answer.finish


def test_one_generation_gives_its_answer() -> None:
    result = run(span.generate("hello"), Fake())
    assert result.text == "HELLO"
    assert finish(result) is Finish.STOP
    assert str(result.report).startswith("1 generation, 10 prompt tokens, 4 (40%) from the cache")


def test_inner_generations_are_asked_together_and_stand_as_exchanges_in_the_outer_prompt() -> None:
    backend = Fake()
    result = run(JUDGE, backend)
    assert [prompts for prompts, _ in backend.calls] == [["a", "b"], ["judge [a>1][b>1]"]]
    first, *exchanges = backend.prompts[-1]
    assert first.reuse is Reuse.PREFIX
    assert all(isinstance(span.content, Exchange) for span in exchanges)
    assert all(span.reuse is Reuse.INDEPENDENT for span in exchanges)
    assert result.text == "JUDGE [A>1][B>1]"


def test_without_tokens_the_text_of_an_inner_answer_is_an_independent_span() -> None:
    backend = Fake(tokens=False)
    run(JUDGE, backend)
    assert backend.asked[-1] == "judge AB"
    assert [s.reuse for s in backend.prompts[-1]] == [Reuse.PREFIX] + 2 * [Reuse.INDEPENDENT]


def test_independent_false_sends_ordinary_text_a_line_each() -> None:
    backend = Fake()
    run(JUDGE, backend, independent=False)
    assert backend.asked[-1] == "judge A\nB\n"
    assert all(s.reuse is Reuse.PREFIX for s in backend.prompts[-1])


def test_an_outer_generation_is_asked_as_soon_as_its_own_input_is_there() -> None:
    deep = span.generate("x", span.generate("slow", max_tokens=5), max_tokens=2)
    quick = span.generate("y", span.generate("quick", max_tokens=3), max_tokens=2)
    backend = Fake()
    run(span.seq(deep, quick), backend)
    assert backend.asked.index("yQUICK") < 4
    assert sorted(backend.asked) == ["quick", "slow", "xSLOW", "yQUICK"]


def test_samplings_are_asked_apart_and_equal_ones_together() -> None:
    backend = Fake()
    query = span.seq(*(span.generate(t, max_tokens=n) for t, n in (("a", 1), ("b", 2), ("c", 1))))
    assert run(query, backend).texts == ("A", "B", "C")
    assert sorted(prompts for prompts, _ in backend.calls) == [["a", "c"], ["b"]]


@pytest.mark.parametrize(("temperature", "times"), [(0.5, 3), (0.0, 1)])
def test_equal_draws_are_asked_one_by_one_and_greedy_ones_once(
    temperature: float, times: int
) -> None:
    backend = Fake()
    one = span.generate("a", temperature=temperature)
    run(span.generate("judge", span.plus(span.repeat(3, one))), backend)
    assert backend.asked == ["a"] * times + ["judge[a>1][a>1][a>1]"]


def test_a_tree_that_is_no_generation_gives_its_texts_in_order() -> None:
    result = run(span.seq(span.generate("a"), "mid", span.plus(span.generate("b"))), Fake())
    assert result.texts == ("A", "mid", "B")
    assert (result.text, result.answer) == ("A\nmid\nB", None)


def test_a_conversation_goes_on_behind_an_answer() -> None:
    backend = Fake()
    run(span.chat("hi", span.chat("hi"), "go on"), backend)
    assert [s.role for s in backend.prompts[-1]] == [Role.USER, Role.ASSISTANT, Role.USER]


def test_a_failed_inner_generation_names_its_place_and_is_told_from_a_cancelled_one() -> None:
    failed = Answer(None, Finish.ERROR, "no luck")

    def reply(text: str) -> Answer | str:
        return failed if text == "b" else text

    for finish, kind in ((Finish.ERROR, RequestError), (Finish.CANCELLED, CancelledError)):
        failed, backend = Answer(None, finish, "no luck"), Fake(reply)
        with pytest.raises(kind, match=r"At generate/seq\[1\]/plus\[1\]/generate: no luck") as e:
            run(JUDGE, backend)
        assert e.type is kind
        assert backend.asked == ["a", "b"]


def test_what_is_open_is_cancelled_when_a_generation_fails() -> None:
    backend = Fake(lambda text: Answer(None, Finish.ERROR, "no luck"))
    with pytest.raises(RequestError):
        run(span.seq(*(span.generate(t, max_tokens=9) for t in "abc")), backend)
    assert backend.closed == 1
    assert len(backend.calls) == 1


def test_an_answer_that_was_cut_is_read_on_and_noted() -> None:
    backend = Fake(lambda text: Answer(text, Finish.LENGTH, "cut", 5, 0, 256, tokens=(1, 2, 3)))
    result = run(JUDGE, backend)
    assert backend.asked[-1] == "judge [a>3][b>3]"
    assert finish(result) is Finish.LENGTH
    assert len(result.report.notes) == 3
    assert "generate/seq[1]/plus[0]/generate: cut off after 256 tokens" in result.report.notes[0]
    assert "Raise max_tokens (now 9)" in result.report.notes[-1]


def test_an_answer_cut_by_a_full_context_is_noted_with_another_remedy() -> None:
    backend = Fake(lambda text: Answer(text, Finish.LENGTH, "cut", 5, 0, 3))
    (note,) = run(span.generate("a", max_tokens=50), backend).report.notes
    assert "Shorten the input" in note


def test_a_backend_that_gives_no_answer_is_an_error() -> None:
    class Silent(Fake):
        def answer(
            self, prompts: Sequence[Prompt], sampling: Sampling
        ) -> Iterator[tuple[int, Answer]]:
            return iter(())

    with pytest.raises(RequestError, match="gave no answer"):
        run(JUDGE, Silent())


def test_a_tree_that_cannot_be_run_is_refused_before_anything_is_asked() -> None:
    backend = Fake()
    with pytest.raises(QueryError, match="nothing to read"):
        run(span.generate("q", span.generate(span.plus())), backend)
    assert not backend.calls


def test_retrieval_reads_a_corpus() -> None:
    backend = Fake()
    query = span.generate("who barks?", span.retrieve("who barks", corpus="c", limit=1))
    run(query, backend, corpora={"c": ["the cat meows", "a dog barks"]})
    assert backend.asked == ["who barks?a dog barks"]
    assert backend.prompts[0][1].reuse is Reuse.INDEPENDENT


def test_retrieval_can_ask_for_what_a_generation_answers() -> None:
    asked: list[tuple[str, int]] = []

    def search(query: str, limit: int) -> list[str]:
        asked.append((query, limit))
        return ["found 1", "found 2"]

    backend = Fake()
    inner = span.retrieve("about:", span.generate("topic"), corpus="c", limit=2)
    run(span.generate("tell", span.plus(inner, "more")), backend, corpora={"c": search})
    assert asked == [("about:\nTOPIC", 2)]
    assert backend.asked[-1] == "tellfound 1found 2more"


def test_a_corpus_that_is_not_given_is_an_error_with_its_name() -> None:
    query = span.generate("q", span.retrieve("x", corpus="wikki"))
    with pytest.raises(QueryError, match="Did you mean 'wiki'"):
        run(query, Fake(), corpora={"wiki": []})


def test_for_attention_asks_judges_in_a_tree() -> None:
    backend = Fake()
    drafts = [span.generate(text) for text in "abcd"]
    run(span.generate("judge ", span.plus(drafts)), backend, for_="attention")
    assert len(backend.asked) == 4 + 2 + 1


def test_progress_counts_generations() -> None:
    seen: list[tuple[str, int, int]] = []
    run(JUDGE, Fake(), progress=lambda *event: seen.append(event))
    assert seen == [("generations", n, 3) for n in (1, 2, 3)]


def test_generations_may_stand_a_hundred_deep() -> None:
    node: Node = span.generate("0")
    for _ in range(100):
        node = span.generate("x", node)
    assert run(node, Fake(lambda text: text[:2])).text == "xx"


def test_exchanges_in_exchanges_become_text_at_some_depth_with_a_note() -> None:
    node: Node = span.generate("0")
    for _ in range(MAX_DEPTH + 2):
        node = span.generate("x", span.plus(node, "y"))
    result = run(node, Fake(lambda text: "a"))
    assert any("read only the text of this answer" in note for note in result.report.notes)


def test_a_query_whose_answers_leave_nothing_to_read_says_so() -> None:
    backend = Fake(lambda text: "" if text == "empty" else text)
    with pytest.raises(RequestError, match="At generate: the model has nothing to read"):
        run(span.generate(span.generate("empty")), backend)
    nothing = span.generate(span.retrieve("boats", corpus="town"))
    with pytest.raises(RequestError, match="nothing to read"):
        run(span.generate(span.seq(nothing)), backend, corpora={"town": ["Ann bakes."]})


def test_progress_is_a_function() -> None:
    backend, number = Fake(), cast(Any, 3)
    with pytest.raises(ConfigError, match="progress is 3"):
        run(span.generate("a"), backend, progress=number)
    assert not backend.calls


def test_equal_generations_are_named_by_their_first_place() -> None:
    result = run(span.generate(span.plus("a", span.generate("b"), span.generate("b"))), Fake())
    assert result.report.generations[0].where == "generate/plus[1]/generate"


def test_a_result_prints_as_its_text_and_its_report() -> None:
    result = run(span.generate("a"), Fake())
    assert str(result).startswith("A\n(1 generation, 10 prompt tokens")
    assert repr(result).startswith("<SpanResult 'A': 1 generation")


LONG = "A text that has several blocks of tokens."
OTHER = "Another one, which has several of them, too."
MODEL = "random:layers=1,hidden=32,heads=2,ffn=32"


@pytest.fixture
def con() -> Iterator[Connection]:
    with connect(MODEL) as opened:
        yield opened


def cached(con: Connection, *texts: str) -> list[int]:
    """Tokens that the cache would serve of each text, as a child of plus."""
    query = span.generate(span.plus(*texts, "never"), "Which?", max_tokens=2)
    (asked,) = con.explain(query).asks
    return [piece.cached or 0 for piece in asked.pieces if piece.independent][:-1]


@pytest.mark.parametrize(
    "query",
    [
        span.prepare(LONG),
        span.plus(span.fragment(LONG), OTHER),
        span.seq(span.prepare(LONG), "by the way", span.plus(OTHER)),
        span.plus(span.prepare(LONG)),
    ],
)
def test_a_prepared_text_is_found_in_the_cache(con: Connection, query: Node) -> None:
    assert cached(con, LONG) == [0]
    con.run(query)
    assert cached(con, LONG)[0] >= len(LONG) - 3


def test_a_text_that_a_generation_reads_is_computed_with_it_and_not_before(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(con.backend), "prepare", None)
    con.run(span.generate(span.plus(span.prepare(LONG), OTHER), "Which?", max_tokens=2))


def test_prepared_states_outlive_those_of_other_text() -> None:
    with connect(MODEL, cache_tokens=512) as con:
        con.run(span.prepare(LONG))
        for number in range(20):
            con.run(span.generate(f"{number} " * 40, max_tokens=2))
        assert cached(con, LONG)[0] >= len(LONG) - 3


def plain(*input: Any) -> Prompt:
    return as_plain(lower(span.generate(*input)))


def text(prompt: Prompt) -> str:
    assert all(each.reuse is Reuse.PREFIX for each in prompt)
    return "".join(str(each.content) for each in prompt)


@pytest.mark.parametrize(
    ("input", "expected"),
    [
        (("q ", span.plus("a", "b\n"), "end"), "q a\nb\nend"),
        (("q?", span.plus("a", "b"), "end"), "q?\na\nb\nend"),
        ((span.plus("a", "b"), "end"), "a\nb\nend"),
    ],
)
def test_children_of_plus_are_lines(input: Any, expected: str) -> None:
    assert text(plain(*input)) == expected


def test_a_plus_in_a_child_of_plus_is_lines_in_its_place() -> None:
    child = span.seq("AAAA", span.plus("BBBB", span.seq(span.plus("C"), "c")), "DDDD")
    prompt = plain("Q ", span.plus(child, "E"), "end")
    assert text(prompt) == "Q AAAA\nBBBB\nC\nc\nDDDD\nE\nend"


def test_a_prompt_without_spans_stays_as_it_is() -> None:
    prompt = lower(span.generate(span.system("s"), "a", "b"))
    assert as_plain(prompt) == prompt


def test_lines_are_said_by_the_role_of_their_child() -> None:
    child = span.seq(span.system("a"), span.plus(span.system("b")), span.system("c"))
    prompt = plain("q", span.plus(child, "z"))
    assert prompt == (
        Span("q"),
        *(Span(f"{letter}\n", Role.SYSTEM) for letter in "abc"),
        Span("z\n"),
    )


def generations(node: Node) -> list[Generate]:
    """The distinct generations of a tree by identity, in document order."""
    return list({id(n): n for n in node.walk() if isinstance(n, Generate)}.values())


def seeds(node: Node) -> list[int | None]:
    return [generation.sampling.seed for generation in generations(node)]


def test_the_tree_says_what_it_said() -> None:
    query = span.generate("q", span.plus(span.repeat(3, span.generate("a", temperature=0.5)), "b"))
    assert unshare(query) == query


def test_equal_greedy_generations_are_one() -> None:
    query = span.seq(span.generate("a"), span.generate("a"), span.generate("b"))
    assert len(generations(unshare(query))) == 2


def test_a_generation_at_random_is_drawn_anew_wherever_it_stands() -> None:
    one = span.generate("a", temperature=0.5)
    tree = unshare(span.plus(one, one, span.generate("a", temperature=0.5)))
    assert len(generations(tree)) == 3


def test_equal_draws_with_a_seed_take_the_next_ones_and_keep_those_they_have() -> None:
    one = span.generate("a", temperature=0.5, seed=7)
    for copies in ((one, one, one), span.repeat(3, one)):
        assert seeds(unshare(span.plus(copies))) == [7, 8, 9]
    different = span.seq(*(span.generate(text, temperature=0.5, seed=1) for text in "abc"))
    assert seeds(unshare(different)) == [1, 1, 1]


def test_repeats_in_repeats_share_no_seed() -> None:
    drafts = span.plus(span.repeat(2, span.generate("a", temperature=0.5, seed=1)))
    tree = unshare(span.seq(span.repeat(3, span.generate("judge", drafts))))
    judges = [g for g in generations(tree) if g.sampling.seed is None]
    assert len(judges) == 3
    assert sorted(s for s in seeds(tree) if s is not None) == [1, 2, 3, 4, 5, 6]


def test_many_equal_draws_are_told_apart_soon() -> None:
    one = span.generate("a", temperature=0.5, seed=0)
    tree = unshare(span.plus((one,) * 2_000))
    assert seeds(tree) == list(range(2_000))


def test_repeats_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DRAWS", 50)
    node: Node = span.generate("a", temperature=0.5)
    for _ in range(10):
        node = span.plus(node, node)
    with pytest.raises(QueryError, match="Repeat less"):
        unshare(node)
