"""The page around its views: key, colours, widths, and what the browser is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from selenium.webdriver.common.keys import Keys

import relquery.serve
from tests.serve.console.page import Page
from tests.serve.console.stand_in import KEY

CONTROLS = (
    "main button, main input, main textarea, main [tabindex='0'], main [role=img], header button"
)
STATIC = Path(relquery.serve.__file__).parent / "console"


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urlopen(Request(url, headers=headers, method=method)) as response:
            return response.status, dict(response.headers), response.read()
    except HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_the_page_may_load_only_its_own_files(console_url: str) -> None:
    status, headers, _ = ask(f"{console_url}/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_files_name_no_other_site_and_hold_no_inline_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//\w+\.\w|\beval\(|innerHTML|<style|\sstyle=|\son\w+=\"", text)
    assert len(text) < 16_000


def test_each_file_is_served_once_and_then_known(console_url: str) -> None:
    for path in STATIC.iterdir():
        status, headers, content = ask(f"{console_url}/console/{path.name}")
        assert (status, content) == (200, path.read_bytes())
        tag = {"If-None-Match": headers["etag"]}
        assert ask(f"{console_url}/console/{path.name}", **tag)[0] == 304


@pytest.mark.parametrize("name", ["nothing.js", "..%2f__init__.py", "%2e%2e/page.py", "static"])
def test_what_is_no_part_of_the_page_is_not_served(console_url: str, name: str) -> None:
    assert ask(f"{console_url}/console/{name}")[0] == 404


@pytest.mark.long
def test_the_page_asks_for_a_key_where_one_is_needed(page: Page) -> None:
    try:
        ask(f"{page.url}/stand-in/lock/on", "POST")
        page.open()
        page.wait(lambda: page.text("facts") == "A key is needed")
        assert page.at("key-field").is_displayed()
        assert "No valid key" in page.text("key-hint")
        page.write("key-field", KEY)
        page.press(Keys.ENTER)
        page.wait(lambda: page.text("facts").startswith("demo, "))
        page.wait(lambda: "movies" in page.text("tables"))
        assert page.script("return sessionStorage.getItem('relquery-key')") == KEY
        assert page.script("return localStorage.length") == 0
        page.expect("status of 401")
    finally:
        ask(f"{page.url}/stand-in/lock/off", "POST", Authorization=f"Bearer {KEY}")


@pytest.mark.long
def test_colours_follow_the_system_until_they_are_chosen(page: Page) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.script(ground)
    page.resize(1280, dark=True)
    assert light != page.script(ground)
    assert page.text("theme") == "Light"
    page.click("theme")
    assert page.script(ground) == light
    page.open()
    assert page.script(ground) == light


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("view", ["sql", "queue", "try"])
@pytest.mark.long
def test_nothing_is_wider_than_the_window(page: Page, width: int, view: str) -> None:
    page.resize(width)
    if view == "sql":
        page.run("SELECT * FROM movies")
        page.wait(lambda: "2,000 rows" in page.text("status"))
    else:
        page.click(f"tab-{view}")
    excess = "return document.documentElement.scrollWidth - innerWidth"
    for tab in ("rows", "report", "prompts", "errors", "plan") if view == "sql" else ("",):
        if tab:
            page.click(f"tab-{tab}")
        assert page.script(excess) <= 0, tab


@pytest.mark.long
def test_views_are_tabs_that_arrow_keys_move_through(page: Page) -> None:
    page.click("tab-sql")
    page.press(Keys.ARROW_RIGHT)
    assert page.at("queue").is_displayed()
    assert page.driver.current_url.endswith("#queue")
    assert page.driver.switch_to.active_element.get_attribute("id") == "tab-queue"


@pytest.mark.long
def test_every_field_and_button_has_a_name(page: Page) -> None:
    for view in ("sql", "queue", "try"):
        page.click(f"tab-{view}")
        page.wait(lambda: nameless(page) == [])


def nameless(page: Page) -> list[str | None]:
    shown = [each for each in page.all(CONTROLS) if each.is_displayed()]
    assert shown
    return [each.get_attribute("outerHTML") for each in shown if not each.accessible_name]
