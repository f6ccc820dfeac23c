"""Documents are read with the place of everything in them, and nothing harmful is read."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import MarkupError, PromptWarning
from relquery.markup import reader
from relquery.markup.reader import MOST_LEVELS, Element, SourcePosition, Words, read


def test_elements_and_texts_know_where_they_are() -> None:
    found = read("<a>\n  one<b c='d'/>two &amp; <![CDATA[<three>]]><!-- no -->four</a>")
    assert found == Element(
        "a",
        {},
        (
            Words("\n  one", SourcePosition(1, 4)),
            Element("b", {"c": "d"}, (), SourcePosition(2, 6)),
            Words("two & <three>four", SourcePosition(2, 16)),
        ),
        SourcePosition(1, 1),
    )


@given(st.text(st.sampled_from("ab <&!/='-\n"), min_size=1))
def test_what_begins_no_tag_and_no_entity_is_text(text: str) -> None:
    document = f"<a b='&lt;'>{text}<c/>&amp;{text}</a>"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        root = read(document)
    words = [child for child in root.children if isinstance(child, Words)]
    assert [each.text for each in words] == [text, f"&{text}"]
    assert root.attributes == {"b": "<"}
    assert len(told) == (1 if "<" in text or "&" in text else 0)
    if told:
        before = min(text.find(sign) for sign in "<&" if sign in text)
        line = text[:before].count("\n") + 1
        assert f"is read as text (line {line}," in str(told[0].message)


def test_a_bare_sign_in_an_attribute_is_the_attributes() -> None:
    with pytest.warns(PromptWarning, match=r"A bare < is read as text \(line 2,"):
        root = read("<a>\n<b c='x<y' d=\"1 & 2 &lt; 3\"/></a>")
    (made,) = [child for child in root.children if isinstance(child, Element)]
    assert made.attributes == {"c": "x<y", "d": "1 & 2 < 3"}


BOMB = """<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;&b;&b;">]>
<a>&c;</a>"""


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        (BOMB, "document type", 1, 1),
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", "document type", 1, 1),
        ("<a>&b;</a>", "undefined entity", 1, 4),
        ("<a>\n  <b>\n</a>", "mismatched tag", 3, 3),
        ("<a>1 < \x01</a>", "invalid token", 1, 7),
        ("", "no element found", 1, 1),
        ("<a/><b/>", "junk after", 1, 5),
        ("<a>" * (MOST_LEVELS + 1), f"more than {MOST_LEVELS} levels", 1, 3 * MOST_LEVELS + 1),
        ("<a>" * 10_000 + "</a>" * 10_000, "levels", 1, 3 * MOST_LEVELS + 1),
    ],
)
def test_what_is_no_document_is_refused_at_its_place(
    text: str, message: str, line: int, column: int
) -> None:
    with pytest.raises(MarkupError, match=message) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert len(str(caught.value)) < 5_000


def test_a_document_of_many_bytes_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "MOST_BYTES", 1_000)
    read(f"<a>{'x' * 900}</a>")
    with pytest.raises(MarkupError, match=r"has 1,007 bytes; it must have at most 1,000"):
        read(f"<a>{'x' * 1_000}</a>")


def test_a_long_text_is_read_in_time_proportional_to_its_length() -> None:
    lines = "a line\n" * 200_000
    (words,) = read(f"<a>{lines}</a>").children
    assert isinstance(words, Words)
    assert words.text == lines
