"""The generator of demo rows and questions."""

from __future__ import annotations

import json
from itertools import islice
from random import Random

import pyarrow.parquet as pq
import pytest

from relquery.demo import TABLES, table_path
from relquery.errors import TableError
from training.domains.rows import Domain, Kind
from training.domains.split import Split
from training.lessons.evaluate import GOALS, score
from training.lessons.generator import DOMAINS, examples
from training.lessons.lessons import END, Mix, lessons
from training.lessons.prompt import Prompt
from training.lessons.tables import tables

KEY_FIELDS = {
    "movies": ("reviewcontent", "critic", "movietitle", "movieinfo", "director"),
    "tickets": ("message", "customer", "product", "productinfo"),
    "products": ("reviewtext", "reviewer", "productname", "description"),
}
domains = pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
kinds = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)


@kinds
def test_the_same_seed_gives_the_same_questions(kind: Kind) -> None:
    first, second, other = (
        [(each.prompt, each.answer) for each in islice(examples(seed, Split.TRAIN, kind), 30)]
        for seed in (3, 3, 4)
    )
    assert first == second != other


@domains
def test_no_key_text_of_a_held_out_row_can_occur_in_training(domain: Domain) -> None:
    rng = Random(5)
    train, held_out = (
        {
            str(row.fields[field])
            for row in (domain.row(rng, split) for _ in range(400))
            for field in KEY_FIELDS[domain.name]
        }
        for split in Split
    )
    assert not train & held_out
    assert all(Split.HELD_OUT.owns(text) for text in held_out)


def test_the_user_turn_is_the_query_and_the_fields_as_json_one_a_line() -> None:
    prompt = Prompt("Is it?", (("title", 'The "Red" Wolf'), ("year", 7)))
    text = prompt.messages[1]["content"]
    assert text == (
        "Answer the below query:\nIs it?\n\nGiven the following data:\n"
        '{\n"title": "The \\"Red\\" Wolf",\n"year": 7\n}'
    )
    assert json.loads(text[text.index("{") :]) == {"title": 'The "Red" Wolf', "year": 7}


def test_the_documented_wordings_are_asked() -> None:
    assert {query for domain in DOMAINS for ask in domain.asks for query in ask.queries} >= {
        "Rate sentiment from 1 to 5.",
        "Is the review positive? Answer Yes or No.",
        "Answer with ONLY 'POSITIVE' or 'NEGATIVE'.",
        "Repeat the value of movietitle.",
        "Summarize the review in one sentence.",
    }


def test_a_lesson_learns_answers_and_only_answers() -> None:
    mix = Mix((0, 6), 0.0, 0.5, 1.0, 6, (1, 1, 1, 1))
    for lesson in islice(lessons(Random(1), mix), 100):
        learned = [text for text, learn, _ in lesson if learn]
        assert learned
        assert all(text.endswith(END) for text in learned)
        assert sum(text.count("<|assistant|>") for text, _, _ in lesson) == len(learned)


@pytest.mark.parametrize("name", TABLES)
def test_a_bundled_table_is_what_the_generator_writes(name: str) -> None:
    assert table_path(name).stat().st_size < 500_000
    assert pq.read_table(table_path(name)).to_pylist() == tables()[name]


def test_an_unknown_table_is_named_with_those_there_are() -> None:
    with pytest.raises(TableError, match="movies, tickets, products, films"):
        table_path("movie")


def test_a_perfect_model_scores_one_and_a_mute_one_nothing() -> None:
    def asked(prompt: Prompt) -> str:
        return prompt.query + str(sorted(prompt.fields, key=str))

    drawn = (each for kind in Kind for each in islice(examples(1, Split.HELD_OUT, kind), 30))
    known = {asked(example.prompt): example.answer for example in drawn}
    perfect = score(lambda prompts: [known[asked(prompt)] for prompt in prompts], 30)
    mute = score(lambda prompts: [""] * len(prompts), 30)
    assert perfect.missed == {}
    assert set(perfect.figures) == set(GOALS)
    assert set(mute.missed) == set(GOALS) - {"same under shuffle"}
