"""Prompts over schemas are answered as in this process."""

from __future__ import annotations

from typing import Any

import httpx

import relquery as rq
from relquery.connection import Connection
from tests.serve.conftest import SCHEMA

TRAVEL = '<prompt schema="travel"><plan duration="3 days"><home/></plan>Where shall I go?</prompt>'


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/prompts", json={"markup": SCHEMA, "max_tokens": 8} | body)


def test_a_prompt_is_answered_as_in_process(client: httpx.Client, local: Connection) -> None:
    local.register(rq.Schema.parse(SCHEMA))
    expected = local.prompt(TRAVEL, max_tokens=8)
    found = post(client, prompt=TRAVEL).json()
    assert found["answer"] == expected.text
    assert [one["name"] for one in found["used"]] == [one.name for one in expected.used]
    plain = post(client, prompt=TRAVEL, independent=False).json()
    assert plain["answer"] == local.prompt(TRAVEL, max_tokens=8, independent=False).text
    assert plain["used"] == []


def test_modules_are_cached_for_the_next_prompt(client: httpx.Client) -> None:
    post(client, prompt=TRAVEL, max_tokens=2)
    again = post(client, prompt=TRAVEL.replace("go", "stay"), max_tokens=2).json()
    modules = [one for one in again["used"] if one["name"] != "prompt"]
    assert [one["cached"] for one in modules] == [one["tokens"] for one in modules]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_wrong_markup_is_refused_with_its_place_and_names_no_file(client: httpx.Client) -> None:
    entity = '<!DOCTYPE a [<!ENTITY b "c">]><schema name="x">&b;</schema>'
    for markup in ("<schema", "x", entity):
        assert post(client, markup=markup, prompt=TRAVEL).status_code == 400
    answer = post(client, prompt='<prompt schema="travel"><plane/></prompt>')
    assert answer.status_code == 400
    assert "line 1" in answer.json()["error"]["message"]
    for file in ("travel.xml", "/etc/passwd", "../secret.csv"):
        markup = f'<schema name="x"><user><module name="m" src="{file}"/></user></schema>'
        answer = post(client, markup=markup, prompt="<prompt schema='x'><m/></prompt>")
        assert answer.status_code == 400
        assert "src=" in answer.json()["error"]["message"]
