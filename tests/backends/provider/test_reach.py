"""Services of OpenAI's form, each by its word, against a stand-in that has its quirks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.standin.http import Json, Request, Response
from benchmarks.standin.server import Reply, Scripted, started
from benchmarks.standin.wires.anthropic import message
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.base import Backend
from relquery.backends.load import is_served, load
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import PROVIDERS, Access, CommandToken
from relquery.errors import BudgetError, ConfigError, ModelError
from relquery.prompt import Answer, Sampling, Span
from relquery.sql.executor.context import usd_of


class Service(Scripted):
    """A stand-in that keeps the path and the headers of each request.

    token: that it takes besides; others are refused, as an expired one is.
    """

    token = ""

    def __init__(self, answer: Any, route: str) -> None:
        super().__init__(answer, route)
        self.seen: list[tuple[str, Mapping[str, str]]] = []

    async def handle(self, request: Request) -> Response:
        self.seen.append((request.path, request.headers))
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return Response({"error": {"message": "token expired", "code": "401"}}, 401)
        return await super().handle(request)


class Opened:
    """Starts services, for as long as a test runs."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def __call__(self, path: str = "/v1", answer: Any = None) -> Service:
        def yes(body: Json) -> Reply:
            del body
            return completion("yes")

        return self.stack.enter_context(started(Service(answer or yes, f"{path}/chat/completions")))


@pytest.fixture
def service() -> Iterator[Opened]:
    with ExitStack() as stack:
        yield Opened(stack)


def ask(model: str, rows: int = 1, **options: Any) -> list[Answer]:
    backend = load(model, **{"max_retries": 2} | options)
    prompts = [(Span(f"question {row}"),) for row in range(rows)]
    found = dict(backend.answer(prompts, Sampling(max_tokens=5)))
    return [found[row] for row in range(rows)]


def spent(backend: Backend) -> float | None:
    """USD, as far as the price is known."""
    tally = backend.tally()
    assert tally is not None
    return tally.usd


def test_each_service_has_its_address_and_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_OPENAI_ENDPOINT", "AWS_REGION", "GOOGLE_CLOUD_PROJECT", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, provider in PROVIDERS.items():
        assert is_served(f"{name}:m")
        if provider.key:
            monkeypatch.setenv(provider.key, f"key-of-{name}")
    with pytest.raises(ConfigError, match="Set AZURE_OPENAI_ENDPOINT, or give base_url"):
        load("azure:m")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://us.openai.azure.com/")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "global")
    expected = {
        "groq": "https://api.groq.com/openai/v1/",
        "together": "https://api.together.xyz/v1/",
        "openrouter": "https://openrouter.ai/api/v1/",
        "ollama": "http://localhost:11434/v1/",
        "lmstudio": "http://localhost:1234/v1/",
        "llamacpp": "http://localhost:8080/v1/",
        "azure": "https://us.openai.azure.com/openai/v1/",
        "bedrock": "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1/",
        "vertex": "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/"
        "openapi/",
    }
    for name, url in expected.items():
        access = Access.of(PROVIDERS[name], ProviderConfig())
        assert str(access.url) == url
        key = f"key-of-{name}" if PROVIDERS[name].key else "none"
        assert access.settings["headers"]["Authorization"] == f"Bearer {key}"
    assert load("groq:m").name == "groq:m"
    assert load("ollama:m").name == "ollama:m"
    assert load("azure:m").name == "azure:m@us.openai.azure.com/openai"


@pytest.mark.parametrize(
    "name", ["openai", "anthropic", "gemini", "groq", "together", "openrouter", "bedrock"]
)
def test_a_service_without_its_key_says_which_variable_to_set(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, model = PROVIDERS[name].key, f"{name}:m"
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    for variable in (key, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ModelError, match=f"Set the environment variable {key} .*export {key}="):
        load(model).check(Sampling())  # which can tell costs
    monkeypatch.setenv(key, "k")
    load(model).check(Sampling())
    assert load(model).known_as()[0] == model


def test_servers_on_ones_own_machine_need_no_key_and_cost_nothing(
    service: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("ollama", "lmstudio", "llamacpp"):
        server = service()
        (answer,) = ask(f"{name}:gpt-4o-mini", base_url=server.url)
        assert (answer.text, answer.error) == ("yes", None)
        assert server.asked[0]["model"] == "gpt-4o-mini"
        assert spent(load(f"{name}:gpt-4o-mini", base_url=server.url)) is None
        assert not [each for each in caplog.records if each.name.startswith("relquery")]


def test_azure_gets_the_key_in_its_own_header_and_the_version_in_the_query(
    service: Opened,
) -> None:
    server = service("/openai/deployments/mine")
    url = f"{server.address}/openai/deployments/mine?api-version=2024-10-21"
    assert ask("azure:mine", base_url=url, api_key="secret-of-azure")[0].text == "yes"
    ((path, headers),) = server.seen
    assert path == "/openai/deployments/mine/chat/completions?api-version=2024-10-21"
    assert headers["api-key"] == "secret-of-azure"
    assert ask("azure:mine", base_url=url, api_key=lambda: "entra-token")[0].text == "yes"
    path, headers = server.seen[-1]
    assert headers["authorization"] == "Bearer entra-token"
    assert "api-key" not in headers


def test_a_function_gives_each_request_a_token_that_is_valid_then(service: Opened) -> None:
    """As tokens of Azure, Vertex and Bedrock do, it changes while a query runs."""
    given: list[str] = []

    def token() -> str:
        given.append(f"token-{len(given)}")
        server.token = given[-1]
        return given[-1]

    for model in ("azure:m", "vertex:google/gemini-2.5-pro", "bedrock:us.openai.gpt-6-luna"):
        given.clear()
        server = service()
        answers = ask(model, 4, base_url=server.url, api_key=token, max_concurrency=1)
        assert [answer.text for answer in answers] == ["yes"] * 4
        assert len(given) == 4
    with pytest.raises(ModelError, match=r"api_key\(\) gives is no API key"):
        ask("azure:m", base_url=server.url, api_key=lambda: "two words")


def test_anthropic_takes_such_tokens_and_headers_too() -> None:
    with started(Service(lambda body: message("yes"), "/v1/messages")) as server:
        options: dict[str, Any] = {"api_key": lambda: "fresh", "headers": {"x-team": "data"}}
        assert ask("anthropic:claude-opus-4-1", base_url=server.root, **options)[0].text == "yes"
        _, headers = server.seen[-1]
    assert (headers["authorization"], headers["x-team"]) == ("Bearer fresh", "data")


def test_entries_of_an_hour_are_billed_as_such() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 100,
        "cache_read_input_tokens": 5_000,
        "cache_creation_input_tokens": 30_000,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 10_000,
            "ephemeral_1h_input_tokens": 20_000,
        },
    }

    def answer(body: Json) -> Reply:
        del body
        return message("yes") | {"usage": usage}

    with started(Service(answer, "/v1/messages")) as server:
        backend = load("anthropic:claude-sonnet-5", base_url=server.root, api_key="k")
        ((_, answered),) = backend.answer([(Span("q"),)], Sampling(max_tokens=5))
    usd = (10 * 2 + 100 * 10 + 5_000 * 0.2 + 10_000 * 2.5 + 20_000 * 4) / 1e6
    assert spent(backend) == pytest.approx(usd)
    assert (answered.written_tokens, answered.written_1h_tokens) == (30_000, 20_000)
    assert usd_of(backend)(answered) == pytest.approx(usd)  # as the ledger keeps it


def test_a_command_is_run_again_after_five_minutes(tmp_path: Path) -> None:
    count, now = tmp_path / "count", [0.0]
    script = tmp_path / "token.py"
    script.write_text(
        f"from pathlib import Path\np = Path({str(count)!r})\n"
        "n = len(p.read_text()) if p.exists() else 0\np.write_text('x' * (n + 1))\n"
        "print(f'token-{n}')\n"
    )
    token = CommandToken(f"{sys.executable} {script}", lambda: now[0])
    assert [token(), token()] == ["token-0", "token-0"]
    now[0] = 299.0
    assert token() == "token-0"
    now[0] = 300.0
    assert token() == "token-1"
    failing = {
        "no-such-program": "No such file",
        f"{sys.executable} -c \"import sys; sys.exit('expired')\"": "gives no API key: expired",
        f'{sys.executable} -c ""': "exit status 0",
        f"{sys.executable} -c \"print('two words')\"": "is no API key",
        "'": "No closing quotation",
    }
    for command, said in failing.items():
        with pytest.raises(ModelError, match=said):
            CommandToken(command)()


def test_a_command_gives_the_key_of_a_query(service: Opened) -> None:
    server = service()
    server.token = "from-command"
    command = f"{sys.executable} -c \"print('from-command')\""
    answers = ask("bedrock:us.openai.gpt-6-luna", 2, base_url=server.url, api_key_command=command)
    assert [answer.text for answer in answers] == ["yes", "yes"]
    with pytest.raises(ConfigError, match="api_key and api_key_command are both given"):
        ProviderConfig(api_key="k", api_key_command=command)
    with pytest.raises(ModelError, match="`false` gives no API key: exit status 1"):
        ask("bedrock:m", base_url=server.url, api_key_command="false")


def test_headers_go_with_each_request(service: Opened) -> None:
    server = service()
    ask("openrouter:openai/gpt-5-mini", api_key="k", base_url=server.url, headers={"X-Title": "rq"})
    assert server.seen[0][1]["x-title"] == "rq"
    for headers in ([("a", "b")], {"a": 1}, {"a b": "c"}, {"a": "b\nc"}):
        with pytest.raises(ConfigError, match="header"):
            ProviderConfig(headers=headers)  # type: ignore[arg-type]
    shown = repr(ProviderConfig(api_key="secret-key", headers={"x-key": "secret-value"}))
    assert "secret" not in shown


def test_flex_is_asked_for_and_billed_at_half(service: Opened) -> None:
    usd: dict[str | None, float] = {}
    for tier in (None, "flex"):
        server = service()
        backend = load("openai:o4-mini", api_key="k", base_url=server.url, service_tier=tier)
        dict(backend.answer([(Span("q"),)], Sampling(max_tokens=5)))
        assert server.asked[0].get("service_tier") == tier
        usd[tier] = spent(backend) or 0.0
        assert backend.limits.price_share == (0.5 if tier else 1.0)
    assert usd[None] == pytest.approx((10 * 1.1 + 2 * 4.4) / 1e6)
    assert usd["flex"] == pytest.approx(usd[None] / 2)
    wrong: list[dict[str, Any]] = [
        {"service_tier": "fast"},
        {"service_tier": "flex", "batch": True},
    ]
    for options in wrong:
        with pytest.raises(ConfigError, match="service_tier"):
            ProviderConfig(**options)


def test_openrouter_is_billed_by_what_it_says(service: Opened) -> None:
    def answer(body: Json) -> Reply:
        del body
        reply = completion("yes")
        reply["usage"]["cost"] = 0.004
        return reply

    server = service(answer=answer)
    backend = load(
        "openrouter:openai/gpt-5-mini", api_key="k", base_url=server.url, max_concurrency=1,
        budget="0.01USD",
    )  # fmt: skip
    prompts = [(Span(f"q{row}"),) for row in range(9)]
    with pytest.raises(BudgetError, match=r"0\.008 USD are spent|0\.012 USD are spent"):
        dict(backend.answer(prompts, Sampling(max_tokens=5)))
    assert spent(backend) == pytest.approx(0.004 * len(server.asked))


def test_groqs_waits_are_durations(service: Opened) -> None:
    def answer(body: Json) -> Reply:
        if len(server.asked) > 1:
            return completion("yes")
        headers = {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-limit-tokens": "18000",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-reset-tokens": "600ms",
        }
        return Response({"error": {"message": "Rate limit reached"}}, 429, headers)

    server = service(answer=answer)
    begun = time.monotonic()
    (answered,) = ask("groq:llama-3.3-70b-versatile", api_key="k", base_url=server.url)
    assert (answered.text, len(server.asked)) == ("yes", 2)
    assert 0.5 < time.monotonic() - begun < 20
