"""Web pages that may call a server, and the names that it answers to."""

from __future__ import annotations

import pytest

from relquery.errors import ConfigError
from relquery.serve.access.pages import Pages
from relquery.serve.errors import HttpError
from relquery.serve.settings import ServeConfig, is_local


def headers(host: str, origin: str = "") -> list[tuple[bytes, bytes]]:
    found = [(b"host", host.encode())]
    return [*found, (b"origin", origin.encode())] if origin else found


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"])
def test_a_local_server_answers_to_its_names(host: str) -> None:
    Pages("127.0.0.1", ()).check(headers(host))


@pytest.mark.parametrize("host", ["evil.example:8000", "", "127.0.0.1.evil.example"])
def test_a_local_server_refuses_other_names(host: str) -> None:
    with pytest.raises(HttpError) as caught:
        Pages("localhost", ()).check(headers(host))
    assert caught.value.status == 400


def test_a_server_on_a_network_answers_to_any_name() -> None:
    Pages("0.0.0.0", ()).check(headers("llm.example"))


def test_a_foreign_page_is_refused_unless_it_is_allowed() -> None:
    pages = Pages("127.0.0.1", ("https://good.example",))
    pages.check(headers("127.0.0.1:8000", "http://127.0.0.1:8000"))  # its own console
    pages.check(headers("127.0.0.1:8000", "https://good.example"))
    for origin in ("https://evil.example", "null"):
        with pytest.raises(HttpError) as caught:
            pages.check(headers("127.0.0.1:8000", origin))
        assert caught.value.status == 403


def test_who_listens_to_a_network_needs_keys_or_says_open() -> None:
    with pytest.raises(ConfigError, match="--open"):
        ServeConfig("demo", host="0.0.0.0")
    ServeConfig("demo", host="0.0.0.0", open=True)
    assert is_local("127.0.0.2")
    assert is_local("[::1]")
    assert not is_local("llm.example")


@pytest.mark.parametrize("origin", ["*", "example.com", "https://example.com/"])
def test_an_origin_is_as_browsers_write_it(origin: str) -> None:
    with pytest.raises(ConfigError, match="as browsers write it"):
        ServeConfig("demo", origins=(origin,))


def test_an_origin_that_is_no_address_is_refused() -> None:
    with pytest.raises(HttpError) as caught:
        Pages("localhost", ()).check(headers("localhost", "http://[evil"))
    assert caught.value.status == 403
