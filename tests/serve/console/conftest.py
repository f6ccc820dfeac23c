"""A real browser on the page of a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.programs import needed
from tests.serve.console import stand_in
from tests.serve.console.page import Page

PROGRAMS = ("chromium", "chromedriver")


@pytest.fixture(scope="session")
def console_url() -> Iterator[str]:
    with stand_in.started() as found:
        yield found.url


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    found = needed(*PROGRAMS)
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(found["chromedriver"])
    chrome = webdriver.Chrome(options=options, service=service)
    yield chrome
    chrome.quit()


@pytest.fixture
def page(driver: webdriver.Chrome, console_url: str) -> Iterator[Page]:
    """The page, freshly loaded, without what earlier tests left; it may log no errors."""
    found = Page(driver, console_url)
    found.resize(1280)
    found.open()
    yield found
    logged = found.logged()
    found.script("sessionStorage.clear(); localStorage.clear()")
    assert logged == []
