"""A real browser on the page of a real server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from selenium import webdriver

from tests.programs import needed
from tests.serve.console.page import Page

ROOT = Path(__file__).parents[3]
PROGRAMS = ("chromium", "chromedriver")
STARTING = 240.0  # seconds: the first start after an installation compiles


@pytest.fixture(scope="session")
def console_url() -> Iterator[str]:
    """Of a server whose SQL routes are those of the stand-in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = (sys.executable, "-m", "tests.serve.console.stand_in", str(port))
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})
    url = f"http://127.0.0.1:{port}"
    try:
        _await(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + STARTING
    while True:
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < until, "the server does not start"
        try:
            with urlopen(url):
                return
        except URLError:
            time.sleep(0.1)


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    """Headless Chromium."""
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
    logged = [each["message"] for each in driver.get_log("browser")]
    found.script("sessionStorage.clear(); localStorage.clear()")
    assert logged == []
