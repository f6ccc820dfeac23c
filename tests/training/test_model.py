"""The bundled demo model, on held-out questions and as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from relquery.demo import model_path
from training.lessons.evaluate import GOALS, Score, score

pytest.importorskip("torch")
TOKENIZER = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(model_path())

MEGABYTE = 10**6


@pytest.fixture(scope="module")
def figures() -> Score:
    from training.greedy import Greedy

    return score(Greedy(model_path()), per_kind=100)


@pytest.mark.parametrize(("figure", "goal"), GOALS.items(), ids=GOALS)
def test_held_out_questions_are_answered_right(figures: Score, figure: str, goal: float) -> None:
    assert figures.figures[figure] >= goal, figures.by_ask


def test_the_model_takes_at_most_twelve_megabytes() -> None:
    files = [path for path in Path(model_path()).rglob("*") if path.is_file()]
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {
        path.name for path in files
    }
    assert sum(path.stat().st_size for path in files) <= 12 * MEGABYTE


@pytest.mark.parametrize(
    "text",
    [
        "plain words, and  two  spaces ",
        "\n\nnew\r\nlines\t and tabs\n",
        "naïve 🙂 日本語 Ελλάδα",
        'quotes " \\" and {"braces": [1, 23]}',
        "a\x00b\x7f\u2028c\ufeff",
        " .,!?'s 's ",
        "",
    ],
)
def test_the_tokenizer_loses_nothing(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


def test_a_newline_is_a_token_of_its_own() -> None:
    ids = TOKENIZER('Is it?\n\nGiven:\n{\n"a": "b",\n"c": 1\n}')["input_ids"]
    tokens = [TOKENIZER.decode([token]) for token in ids]
    assert all(token == "\n" for token in tokens if "\n" in token)


def test_the_chat_template_adds_one_token_a_turn() -> None:
    messages = [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}]
    text = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == "<|system|>A<|user|>B<|assistant|>"
    assert len(TOKENIZER(text)["input_ids"]) == 5
