"""The page about a run shows its prompts, opens at any size, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError
from relquery.prompt import Answer, Finish, Role, Span
from relquery.report import Report
from relquery.sql.page import bars, page
from relquery.sql.record import Recording, Sent, StageRecord
from tests.sql.conftest import fails_for_dune, opened
from tests.sql.fakes import FakeBackend

VOID = {"meta", "progress"}


class Nesting(HTMLParser):
    """Checks that each element is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def well_formed(text: str) -> str:
    parser = Nesting()
    parser.feed(text)
    assert parser.open == []
    assert not re.search(r"<script|<link|<img|https?:|url\(|@import|\son\w+=", text)
    return text


def sent(text: str, reused: int | None, exact: bool = True) -> Sent:
    answer = Answer("<b>", Finish.STOP, prompt_tokens=9, cached_tokens=4, output_tokens=2)
    return Sent((Span("sys", Role.SYSTEM), Span(text)), answer, reused, exact)


def with_one(one: Sent) -> str:
    record = StageRecord(5, {0: one})
    record.counts.extend([9, 4, 2])
    return well_formed(page("SELECT 1 < 2", "", "", Report(), Recording(5, {"s<1>": record})))


@pytest.mark.filterwarnings("ignore::relquery.errors.PartialResultWarning")
def test_a_run_is_written_to_one_page(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    with opened(FakeBackend(fails_for_dune)) as con:
        con.sql("SELECT LLM('up', title) AS loud FROM films", record=True).write_html(path)
    text = well_formed(path.read_text(encoding="utf-8"))
    assert "SELECT LLM(&#x27;up&#x27;, title) AS loud FROM films" in text
    assert text.count("<details") == 4
    assert "&quot;title&quot;: &quot;Amelie&quot;" in text
    assert "no answer: out of spice" in text
    assert "6 rows, 1 LLM value is missing" in text


def test_without_a_recording_the_page_says_how_to_get_one(con: Connection, tmp_path: Path) -> None:
    con.sql("SELECT LLM('up', title) FROM films").write_html(tmp_path / "run.html")
    text = well_formed((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert "record=True" in text
    assert "projection 1" in text


def test_a_page_that_cannot_be_written_is_an_error_with_a_remedy(
    con: Connection, tmp_path: Path
) -> None:
    found = con.sql("SELECT 1")
    with pytest.raises(ConfigError, match=r"the folder .*nodir does not exist. Create it first"):
        found.write_html(tmp_path / "nodir" / "x.html")
    with pytest.raises(ConfigError, match=r"cannot be written: .*Give another file name"):
        found.write_html(tmp_path)


def test_the_reused_part_is_marked_across_messages() -> None:
    text = with_one(sent("<user> text", 3 + 6))
    assert '<span class="reused">sys\n\n&lt;user&gt;</span>' in text
    assert '<span class="computed"> text</span>' in text
    assert "9 tokens: 4 reused, 5 computed, 2 decoded" in text
    assert "estimated" not in text
    assert "estimated from the number of tokens" in with_one(sent("x", 1, exact=False))
    assert "Some parts are modules" in with_one(sent("x", None, exact=False))


def test_what_prompts_repeat_is_shortened_in_the_middle() -> None:
    text = with_one(sent("a" * 5000 + "b" * 5000, 3 + 5000))
    assert "[... 4,605 characters ...]" in text
    assert text.count("b") < 4200
    assert with_one(sent("c" * 9, 3)).count("c" * 9) == 1


def test_a_hundred_thousand_prompts_give_a_page_of_some_megabytes_that_says_what_is_left_out() -> (
    None
):
    record = StageRecord(2000, {at: sent("x" * 6000, 3) for at in range(2000)})
    for at in range(100_000):
        record.counts.extend([1000 + at % 7, at % 900, 5])
    text = well_formed(page("", "", "", Report(), Recording(2000, {"a": record, "b": record})))
    assert len(text) < 4_000_000
    left = [int(found.replace(",", "")) for found in re.findall(r"([\d,]+) more prompts", text)]
    assert [100_000 - one for one in left] == [text.count("<details") // 2] * 2
    assert "the mean of 167 prompts" in text


def test_bars_are_stacked_to_the_height_of_the_highest() -> None:
    record = StageRecord(5)
    record.counts.extend([50, 40, 0, 80, 0, 20])
    text = bars(record)
    reused, computed, decoded = re.findall(r'class="(?:reused|computed|decoded)" d="(.*?)"', text)
    assert reused == "M0 100.0h1v-40.0h-1z"
    assert computed == "M0 60.0h1v-10.0h-1zM1 100.0h1v-80.0h-1z"
    assert decoded == "M1 20.0h1v-20.0h-1z"
    assert "The tallest has 100 tokens." in text
