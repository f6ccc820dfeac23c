"""The SQL view: a query is written, run, stopped, explained."""

from __future__ import annotations

from urllib.request import urlopen

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.serve.console.page import Page
from tests.serve.console.stand_in import NASTY

pytestmark = pytest.mark.long


def finished(page: Page) -> None:
    page.run("SELECT * FROM movies")
    page.wait(lambda: page.text("status").startswith("2,000 rows in"))


def test_a_query_gives_rows_types_and_figures(page: Page) -> None:
    finished(page)
    assert page.text("rows").startswith("2,000 rows, 5 columns")
    head = page.all("#rows thead th")
    assert [cell.text for cell in head] == [
        "#", "movietitle\nVARCHAR", "year\nBIGINT", "score\nDOUBLE", "mood\nVARCHAR",
        "review\nVARCHAR",
    ]  # fmt: skip
    figures = page.text("figures").split("\n")
    shown = dict(zip(figures[::2], figures[1::2], strict=True))
    assert shown == {
        "Calls": "1,480", "Prompt tokens": "222,000", "Reused": "76%",
        "Answer tokens": "1,480", "From ledger": "120", "Time": "3.42 s",
    }  # fmt: skip


def test_all_rows_can_be_reached_null_is_told_from_text_and_markup_stays_text(page: Page) -> None:
    finished(page)
    assert len(page.all("#rows tr[data-number]")) < 80
    assert page.read("#rows tr[data-number='3'] td.null") == "NULL"
    page.script("document.querySelector('.grid').focus()")
    page.press(Keys.ARROW_DOWN)
    assert NASTY in page.read(".detail")
    assert page.driver.title == "relquery console"
    page.press(Keys.END)
    page.wait(lambda: "part 1,999" in page.read(".detail"))
    assert page.read("#rows tr.active").startswith("2,000\t")


def test_the_result_is_copied_as_csv(page: Page) -> None:
    page.script(
        "Object.defineProperty(navigator, 'clipboard', {configurable: true, value: "
        "{writeText: async (text) => { window.copied = text; }}})"
    )
    finished(page)
    page.click("copy")
    page.wait(lambda: page.text("copy") == "Copied")
    head, *lines = page.script("return window.copied").split("\r\n")
    assert head == "movietitle,year,score,mood,review"
    assert lines[0].startswith('"The Winter Castle, part 0",1950,0,positive,"<img src=x onerror=""')
    assert lines[3].startswith('"The Winter Castle, part 3",1953,0.0015,,"A slow')


def test_the_report_says_what_was_saved_and_compares_with_table_order(page: Page) -> None:
    finished(page)
    page.click("tab-report")
    said = page.text("report")
    assert "400 rows shared the answer of an identical input." in said
    assert "120 answers came from the ledger." in said
    assert "168,720 of 222,000 prompt tokens were reused" in said
    expected = "EXPLAIN expected 72% of prompt tokens to be reused, and 31% with rows and fields in"
    assert expected not in said
    page.click("explain")
    page.wait(lambda: page.text("status") == "2 stages")
    finished(page)
    page.click("tab-report")
    assert f"{expected} table" in page.text("report")
    page.click("tab-errors")
    assert page.text("tab-errors") == "Errors (1)"
    assert "cut off after 256 tokens" in page.text("errors")


def test_prompts_are_a_heat_map_that_mouse_and_keys_read(page: Page) -> None:
    finished(page)
    page.click("tab-prompts")
    (heat,) = page.all(".heat")
    assert len(page.all(".heat path")) == 3
    ActionChains(page.driver).move_to_element(heat).perform()
    page.wait(lambda: page.read(".about h4"))
    middle = int(page.read(".about h4").removeprefix("Prompt "))
    assert page.read(".about pre").rstrip().endswith(f"number {middle - 1}")
    ActionChains(page.driver).move_to_element_with_offset(heat, 0, 8).perform()
    page.wait(lambda: page.read(".about h4") == f"Prompt {middle + 1}")
    page.script("document.querySelector('.heat').focus()")
    page.press(Keys.HOME)
    about = page.read(".about")
    assert about.split()[:8] == ["Prompt", "1", "reused", "0", "computed", "90", "decoded", "1"]
    assert "You are a data analyst. Is the review positive? number 0" in about
    page.press(Keys.ARROW_DOWN)
    assert "number 1" in page.read(".about")


def test_a_running_query_shows_its_progress_and_is_stopped(page: Page) -> None:
    page.run("SELECT slow")
    page.wait(lambda: "of 400" in page.text("progress"))
    meter = page.all("#progress progress")[0]
    page.wait(lambda: int(meter.get_attribute("value") or 0) > 3)
    assert page.text("status").startswith("Running, ")
    assert not page.at("run").is_enabled()
    before = _left(page)
    page.click("stop")
    page.wait(lambda: page.text("status").startswith("Stopped after"))
    page.wait(lambda: _left(page) == before + 1)
    assert page.at("run").is_enabled()


def _left(page: Page) -> int:
    with urlopen(f"{page.url}/stand-in/left") as response:
        return int(response.read())


def test_a_query_that_is_refused_or_fails_in_the_midst_says_why(page: Page) -> None:
    page.run("SELECT wrong")
    page.wait(lambda: page.text("notice") == "Column 'titel' is not in table movies.\n"
              "  SELECT titel\n         ^")  # fmt: skip
    page.expect("status of 400")
    page.run("SELECT broken")
    page.wait(lambda: page.text("notice") == "The engine's process ended. Ask again.")
    assert not page.at("results").is_displayed()
    finished(page)
    assert not page.at("notice").is_displayed()
    page.write("query", "SELECT plain")
    page.click("explain")
    page.wait(lambda: page.text("status") == "It asks the model nothing")
    assert "SEQ_SCAN movies" in page.text("plan")


def test_explain_shows_stages_and_asks_nothing(page: Page) -> None:
    page.write("query", "SELECT * FROM movies")
    page.click("explain")
    page.wait(lambda: page.text("status") == "2 stages")
    first = "filter 1 ≤ 1,536 ≤ 1,210 0 ≤ 181,500 72% 31% 14.2 s Is it positive?"
    assert first in page.text("plan")
    assert "select 2 – – – – – – – Why?" in page.text("plan")
    assert "the guard asks 50 of them a second time" in page.text("plan")
    assert not page.at("figures").is_displayed()


def test_tables_fill_in_columns_and_examples_and_an_empty_query_is_not_sent(page: Page) -> None:
    page.click("run")
    assert page.text("status") == "Write a query first."
    page.wait(lambda: "1,536 rows" in page.text("tables"))
    page.all(".example")[0].click()
    query = page.at("query").get_attribute("value") or ""
    assert "FROM movies" in query
    assert "AI_FILTER('Is {reviewcontent} positive?')" in query
    page.write("query", "SELECT ")
    page.all(".column")[2].click()
    assert page.at("query").get_attribute("value") == "SELECT movietitle"
