"""What headers say: which page asks, of which name, and what is declared of a relQuery."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from relquery.errors import ConfigError
from relquery.serve.bodies import DeclaredFields, read_declared
from relquery.serve.errors import HttpError
from relquery.serve.middleware import Pages
from relquery.serve.settings import ServeConfig, is_local
from tests.cases import cases


def headers(host: str, origin: str = "") -> Headers:
    return Headers({"Host": host} | ({"Origin": origin} if origin else {}))


def test_a_local_server_answers_to_its_names_alone() -> None:
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        Pages("127.0.0.1", ()).check(headers(host))
    for host in ("evil.example:8000", "", "127.0.0.1.evil.example"):
        with pytest.raises(HttpError) as caught:
            Pages("localhost", ()).check(headers(host))
        assert caught.value.status == 400
    Pages("0.0.0.0", ()).check(headers("llm.example"))  # on a network it has any name


def test_a_foreign_page_is_refused_unless_it_is_allowed() -> None:
    pages = Pages("127.0.0.1", ("https://good.example",))
    pages.check(headers("127.0.0.1:8000", "http://127.0.0.1:8000"))  # its own console
    pages.check(headers("127.0.0.1:8000", "https://good.example"))
    for origin in ("https://evil.example", "null", "http://[evil"):
        with pytest.raises(HttpError) as caught:
            pages.check(headers("127.0.0.1:8000", origin))
        assert caught.value.status == 403


def test_settings_of_the_network_are_checked() -> None:
    with pytest.raises(ConfigError, match="--open"):
        ServeConfig("demo", host="0.0.0.0")
    ServeConfig("demo", host="0.0.0.0", open=True)
    names = ("127.0.0.2", "[::1]", "llm.example")
    assert list(map(is_local, names)) == [True, True, False]
    for origin in ("*", "example.com", "https://example.com/"):
        with pytest.raises(ConfigError, match="as browsers write it"):
            ServeConfig("demo", origins=[origin])


def test_a_header_is_pairs() -> None:
    for text in (
        "id=q7; rows=40; deadline=2.5",
        'id="q7";rows=40;deadline=2.5;',
    ):
        assert read_declared(text) == DeclaredFields(id="q7", rows=40, deadline=2.5)


@pytest.mark.parametrize(("text", "said", "param"), cases(__file__))
def test_a_wrong_header_is_refused_by_name(text: str, said: str, param: str) -> None:
    with pytest.raises(HttpError) as caught:
        read_declared(text)
    assert caught.value.status == 400
    assert said in caught.value.message
    assert caught.value.param == param
