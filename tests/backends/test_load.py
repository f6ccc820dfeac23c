"""The name of a model says who serves it; a name that nobody serves says what would work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relquery.backends.load import load
from relquery.backends.local import open as local
from relquery.errors import ConfigError


def test_a_model_of_a_provider_is_told_what_would_work() -> None:
    for model, remedy in {
        "gpt-4o": "Write 'openai:gpt-4o'",
        "gpt-3.5-turbo": "Write 'openai:gpt-3.5-turbo'",
        "o1": "Write 'openai:o1'",
        "o3-mini": "Write 'openai:o3-mini'",
        "chatgpt-4o-latest": "Write 'openai:chatgpt-4o-latest'",
        "openai/gpt-4o-mini": "Write 'openai:gpt-4o-mini'",
        "claude-sonnet-4": "Write 'anthropic:claude-sonnet-4'",
        "anthropic/claude-3-haiku": "Write 'anthropic:claude-3-haiku'",
        "gemini-2.0-flash": "Write 'gemini:gemini-2.0-flash'",
        "ollama:llama3": "'ollama' is not supported. Use 'openai:NAME', 'anthropic:NAME'",
        "mistral:large": "any OpenAI-compatible server, 'openai:NAME' with its address",
        "antropic:claude-sonnet-5": "Did you mean 'anthropic'",
        "opnai:gpt-4o": "Did you mean 'openai'",
        "Random:layers=2": "Did you mean 'random'",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load(model)
        assert model in str(caught.value)
        assert remedy in str(caught.value)


def test_other_names_and_folders_are_for_the_embedded_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt-4o").mkdir()
    opened: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(local, "load_backend", lambda name, **given: opened.append((name, given)))
    names = ["gpt2", "openai-gpt", "openai/gpt-oss-20b", "EleutherAI/gpt-neo-125m"]
    names += ["umd/claude2-alpaca", "CohereForAI/command-r", "random:layers=1", "demo"]
    names += ["C:\\models\\mine", "/models/gpt-4o", "olmo", "o200k", "gpt-4o"]
    for name in names:
        load(name, dtype="float32")
    assert opened == [(name, {"dtype": "float32"}) for name in names]
