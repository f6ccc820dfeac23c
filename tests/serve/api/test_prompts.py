"""Schemas are registered and prompts over them are answered as in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import relquery as rq
from relquery.connection import Connection
from relquery.serve.api import prompts as registry
from relquery.serve.errors import HttpError
from tests.serve.conftest import SCHEMA

OWN = """<schema name="own"><user>
<module name="lake">I like lakes and long walks.</module></user></schema>"""
TRAVEL = '<prompt schema="travel"><plan duration="3 days"><home/></plan>Where shall I go?</prompt>'


def post(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(path, json=body)


@pytest.fixture
def own(client: httpx.Client) -> Iterator[str]:
    assert post(client, "/v1/schemas", markup=OWN).status_code == 200
    yield "own"
    client.delete("/v1/schemas/own")


def test_a_prompt_is_answered_as_in_process(client: httpx.Client, local: Connection) -> None:
    local.register(rq.Schema.parse(SCHEMA))
    expected = local.prompt(TRAVEL, max_tokens=8)
    found = post(client, "/v1/prompts", prompt=TRAVEL, max_tokens=8).json()
    assert found["answer"] == expected.text
    assert [one["name"] for one in found["used"]] == [one.name for one in expected.used]
    plain = post(client, "/v1/prompts", prompt=TRAVEL, max_tokens=8, independent=False).json()
    assert plain["answer"] == local.prompt(TRAVEL, max_tokens=8, independent=False).text
    assert plain["used"] == []


def test_modules_are_cached_for_the_next_prompt(client: httpx.Client) -> None:
    post(client, "/v1/prompts", prompt=TRAVEL, max_tokens=2)
    again = post(client, "/v1/prompts", prompt=TRAVEL.replace("go", "stay"), max_tokens=2).json()
    modules = [one for one in again["used"] if one["name"] != "prompt"]
    assert [one["cached"] for one in modules] == [one["tokens"] for one in modules]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_posted_schema_is_listed_read_and_deleted(client: httpx.Client, own: str) -> None:
    listed = {one["name"]: one["shared"] for one in client.get("/v1/schemas").json()["data"]}
    assert listed == {"travel": True, own: False}
    shown = client.get(f"/v1/schemas/{own}").json()
    assert (shown["markup"], shown["modules"]) == (OWN, ["lake"])
    modules = client.get("/v1/schemas/travel").json()["modules"]
    assert modules == ["plan", "plan.home", "plan.abroad"]
    assert client.delete(f"/v1/schemas/{own}").json()["deleted"] is True
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/v1/schemas/{own}").status_code == 404
    # What everybody has is not replaced or deleted.
    assert post(client, "/v1/schemas", markup=SCHEMA).status_code == 409
    assert client.delete("/v1/schemas/travel").status_code == 403


def test_a_schema_that_is_posted_again_replaces_the_first(client: httpx.Client, own: str) -> None:
    other = OWN.replace("lakes", "hills").replace("lake", "hill")
    assert post(client, "/v1/schemas", markup=other, prepare=True).json()["modules"] == ["hill"]
    prompt = f'<prompt schema="{own}"><lake/>Where?</prompt>'
    assert post(client, "/v1/prompts", prompt=prompt).status_code == 400
    prompt = prompt.replace("lake", "hill")
    assert post(client, "/v1/prompts", prompt=prompt, max_tokens=2).status_code == 200


def test_posted_markup_names_no_file(client: httpx.Client) -> None:
    for file in ("travel.xml", "/etc/passwd", "../secret.csv"):
        markup = f'<schema name="x"><user><module name="m" src="{file}"/></user></schema>'
        answer = post(client, "/v1/schemas", markup=markup)
        assert answer.status_code == 400
        assert "src=" in answer.json()["error"]["message"]
        assert client.get("/v1/schemas/x").status_code == 404


def test_markup_that_is_wrong_is_refused_and_a_prompt_with_its_place(client: httpx.Client) -> None:
    entity = '<!DOCTYPE a [<!ENTITY b "c">]><schema name="x">&b;</schema>'
    for markup in ("<schema", "x", entity):
        assert post(client, "/v1/schemas", markup=markup).status_code == 400
    answer = post(client, "/v1/prompts", prompt='<prompt schema="travel"><plane/></prompt>')
    assert answer.status_code == 400
    assert "line 1" in answer.json()["error"]["message"]


def test_a_tenant_has_so_many_schemas(local: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_SCHEMAS", 1)
    found = registry.Registry(None)
    owned = found.of("a", lambda: local.backend)
    found.add(owned, rq.Schema.parse(OWN), prepare=False)
    found.add(owned, rq.Schema.parse(OWN), prepare=False)
    with pytest.raises(HttpError, match="already"):
        found.add(owned, rq.Schema.parse(OWN.replace('"own"', '"two"')), prepare=False)
    assert list(found.of("b", lambda: local.backend).own) == []
