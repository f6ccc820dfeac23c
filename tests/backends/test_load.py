"""The name of a model says who serves it; a name that nobody serves says what would work."""

from __future__ import annotations

from pathlib import Path

import pytest

from relquery.backends.load import load
from relquery.backends.local import open as local
from relquery.errors import ConfigError


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        ("gpt-4o", "Write 'openai:gpt-4o'"),
        ("gpt-3.5-turbo", "Write 'openai:gpt-3.5-turbo'"),
        ("o1", "Write 'openai:o1'"),
        ("o3-mini", "Write 'openai:o3-mini'"),
        ("chatgpt-4o-latest", "Write 'openai:chatgpt-4o-latest'"),
        ("openai/gpt-4o-mini", "Write 'openai:gpt-4o-mini'"),
        ("claude-sonnet-4", "Write 'anthropic:claude-sonnet-4'"),
        ("anthropic/claude-3-haiku", "Write 'anthropic:claude-3-haiku'"),
        ("gemini-2.0-flash", "Write 'gemini:gemini-2.0-flash'"),
        ("ollama:llama3", "'ollama' is not supported. Use 'openai:NAME', 'anthropic:NAME'"),
        ("mistral:large", "any OpenAI-compatible server, 'openai:NAME' with its address"),
        ("antropic:claude-sonnet-5", "Did you mean 'anthropic'"),
        ("opnai:gpt-4o", "Did you mean 'openai'"),
        ("Random:layers=2", "Did you mean 'random'"),
    ],
)
def test_a_model_of_a_provider_is_told_what_would_work(model: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(model)
    assert model in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        "gpt2", "openai-gpt", "openai/gpt-oss-20b", "EleutherAI/gpt-neo-125m", "umd/claude2-alpaca",
        "CohereForAI/command-r", "random:layers=1", "demo", "C:\\models\\mine", "/models/gpt-4o",
        "olmo", "o200k",
    ],
)  # fmt: skip
def test_other_names_are_for_the_embedded_engine(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "load_backend", lambda name, **options: (name, options))
    assert load(model, dtype="float32") == (model, {"dtype": "float32"})


def test_a_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt-4o").mkdir()
    monkeypatch.setattr(local, "load_backend", lambda name, **options: name)
    assert load("gpt-4o") == "gpt-4o"
