"""What tests do on the page: click, write, read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

PATIENCE = 8.0  # seconds


class Page:
    """The console in a browser."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def open(self, view: str = "sql") -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/#{view}")
        self.wait(lambda: "Connecting" not in self.text("facts"))

    def resize(self, width: int, dark: bool = False) -> None:
        """Of the window, in pixels; and which colours the system has."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def at(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, name: str) -> str:
        """What can be seen of an element."""
        return self.at(name).text

    def read(self, selector: str) -> str:
        """What can be seen of the first such element; "" where there is none.

        The page draws anew what changes, so an element that was found may be gone when it is read.
        """
        code = "return document.querySelector(arguments[0])?.innerText ?? ''"
        found: str = self.driver.execute_script(code, selector)
        return found

    def click(self, name: str) -> None:
        self.at(name).click()

    def write(self, name: str, text: str) -> None:
        field = self.at(name)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Keys, on what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def run(self, query: str) -> None:
        self.write("query", query)
        self.press(Keys.CONTROL, Keys.ENTER)

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)

    def wait(self, holds: Callable[[], object], patience: float = PATIENCE) -> None:
        until = time.monotonic() + patience
        while True:
            try:
                if holds():
                    return
            except WebDriverException:
                pass
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.03)

    def expect(self, part: str) -> None:
        """The browser has logged nothing but failed requests with this part in the message."""
        assert all(part in each for each in self.logged())

    def logged(self) -> list[str]:
        """What the browser has logged since it was last asked."""
        driver: Any = self.driver  # selenium's function has no types
        return [each["message"] for each in driver.get_log("browser")]
