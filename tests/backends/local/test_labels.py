"""Whether an answer can still become one of some texts, told from its first tokens."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from relquery.backends.local.labels import ComparedTexts
from relquery.model.networks.random import byte_tokenizer
from relquery.model.text.render import Renderer

RENDERER = Renderer(byte_tokenizer())
END = frozenset({256})
TEXT = st.text("aYes é🎉\n.", max_size=6)


def comparison(texts: list[str], stop: list[str] | None = None) -> ComparedTexts:
    return ComparedTexts(RENDERER, END, texts, stop or [])


def test_an_answer_is_decided_once_it_can_be_neither() -> None:
    both = comparison(["Yes", "No"])
    for begun in ("", "Y", "Yes", "Yes\n", " Y", "No", "N"):
        assert not both.is_decided(RENDERER.encode(begun))
    for begun in ("Nope", "Yes.", "yes", "T"):
        assert both.is_decided(RENDERER.encode(begun))


def test_a_stop_string_may_still_cut_what_is_too_long() -> None:
    tagged = comparison(["Yes"], ["</a>"])
    assert not tagged.is_decided(RENDERER.encode("Yes</"))
    assert tagged.is_decided(RENDERER.encode("Yes<b"))


@given(texts=st.lists(TEXT, min_size=1, max_size=3), stop=st.lists(TEXT, max_size=2), more=TEXT)
@example(texts=["é"], stop=[], more="")
@example(texts=["🎉🎉"], stop=[], more="")
@example(texts=["Yes"], stop=["\n\n"], more="")
def test_what_becomes_a_text_is_not_decided(texts: list[str], stop: list[str], more: str) -> None:
    """Token by token: half a character is not decided either."""
    one = comparison(texts, stop)
    for end in ["", *stop]:
        tokens = RENDERER.encode(texts[0] + end)
        for count in range(len(tokens) + 1):
            assert not one.is_decided(tokens[:count])


def test_drafts_are_the_texts_unless_they_are_too_much() -> None:
    for texts in (["Yes" * 6], [""], [f"{number:02}" for number in range(16)]):
        assert comparison(texts).drafts() is None
    with_an_end = ComparedTexts(RENDERER, frozenset(RENDERER.encode("o")), ["Yes", "No"], [])
    for each, tokens in ((comparison(["Yes", "No", "", "Yes"]), 5), (with_an_end, 3)):
        drafts = each.drafts()
        assert drafts is not None
        assert drafts.tokens == tokens
