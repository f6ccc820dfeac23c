"""Verbs have the parameters of LOTUS 1.2.4 in its order; what is refused is refused by name."""

from __future__ import annotations

import inspect
import re
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relquery.errors import ConfigError
from relquery.frames.lotus import types
from relquery.frames.lotus.types import CascadeArgs, ReasoningStrategy
from relquery.frames.lotus.verbs import ORDERS, VERBS, accepted, by_name

pytestmark = pytest.mark.usefixtures("configured")

TABLE: Any = pd.DataFrame({"t": ["Algebra", "Logic"], "u": ["a", "b"]})
OTHER: Any = pd.DataFrame({"o": ["Maths", "Music"]})

# The order and defaults in LOTUS 1.2.4; "-": none, "f": a function.
FACTS: dict[str, list[tuple[str, object]]] = {
    verb: [
        (name, value if value in ("-", "f") else eval(value, dict(vars(types))))
        for name, value in (one.split("=", 1) for one in re.split(r", (?=\w+=)", parameters))
    ]
    for verb, parameters in re.findall(
        r"^(\w+): (.*)$", (Path(__file__).parent / "accessors.txt").read_text("utf-8"), re.M
    )
}
NEEDED: dict[str, list[Any]] = {
    "sem_filter": ["{t} is hard"],
    "sem_map": ["Say {t}"],
    "sem_extract": [["t"], {"tag": "topic"}],
    "sem_agg": ["Sum {t} up"],
    "sem_topk": ["Which {t} is best?", 1],
    "sem_join": [OTHER, "{t} is {o}"],
    "sem_sim_join": [OTHER, "t", "o", 1],
    "sem_search": ["t", "logic", 1],
    "sem_dedup": ["t", 0.9],
}
SET: dict[str, object] = {
    "postprocessor": len,
    "strategy": ReasoningStrategy.COT,
    "cascade_args": CascadeArgs(recall_target=0.9),
    "helper_examples": TABLE,
    "output_tokens": ("Yes", "No"),
    "cascade_threshold": 0.5,
    "response_format": {"type": "json_object"},
}
REFUSED = [
    (verb, at, name)
    for verb, facts in FACTS.items()
    for at, (name, _) in enumerate(facts)
    if name not in accepted(verb) and name not in ("progress_bar_desc", "split_fields_into_cols")
]


def defaults(verb: str) -> list[Any]:
    return [None if default == "f" else default for _, default in FACTS[verb]]


def test_parameters_and_their_defaults_are_those_of_lotus_in_its_order() -> None:
    for verb, facts in FACTS.items():
        assert list(ORDERS[verb]) == [name for name, _ in facts]
        own = inspect.signature(VERBS[verb]).parameters
        for name in accepted(verb):
            default = own[name].default
            assert dict(facts)[name] == ("-" if default is inspect.Parameter.empty else default)


@pytest.mark.parametrize("verb", VERBS)
def test_all_arguments_in_their_order_mean_the_defaults(verb: str) -> None:
    needed = NEEDED[verb]
    full = getattr(TABLE, verb)(*needed, *defaults(verb)[len(needed) :])
    pd.testing.assert_frame_equal(full, getattr(TABLE, verb)(*needed))


def test_what_is_refused_is_refused_by_name_in_its_place() -> None:
    for verb, at, name in REFUSED:
        arguments = [*NEEDED[verb], *defaults(verb)[len(NEEDED[verb]) :]]
        arguments[at] = SET.get(name, True)
        with pytest.raises(ConfigError, match=f"^{verb} was given {name}, which is not supported"):
            getattr(TABLE, verb)(*arguments)


def test_the_fourth_argument_of_a_filter_keeps_all_rows() -> None:
    found = TABLE.sem_filter("{t} is hard", False, False, True)
    assert list(found.columns) == ["t", "u", "_filter"]
    assert len(found) == len(TABLE)


def test_too_many_arguments_and_one_twice_are_errors() -> None:
    with pytest.raises(ConfigError, match="sem_dedup was given 3 arguments without a name"):
        TABLE.sem_dedup("t", 0.9, 1)
    with pytest.raises(ConfigError, match="given threshold twice: without a name, in place 2"):
        TABLE.sem_dedup("t", 0.9, threshold=1)
    assert by_name("sem_dedup", ("t",), {"threshold": 1}) == {"col_name": "t", "threshold": 1}


def test_an_unknown_argument_is_told_those_that_are_accepted() -> None:
    for verb in VERBS:
        with pytest.raises(ConfigError, match="'sufix'") as error:
            getattr(TABLE, verb)(*NEEDED[verb], sufix="x")
        listed = str(error.value).partition("Known: ")[2].partition(". ")[0].rstrip(".").split(", ")
        assert set(accepted(verb)) <= set(listed)
        assert not {name for _, _, name in REFUSED} - set(accepted(verb)) & set(listed)


def test_a_table_of_examples_is_taken_or_refused_by_name() -> None:
    examples = TABLE.assign(o="Maths", Answer="Yes")
    for verb, name in product(VERBS, ("examples", "helper_examples")):
        use = getattr(TABLE, verb)
        if name in accepted(verb):
            assert isinstance(use(*NEEDED[verb], examples=examples), pd.DataFrame)
            continue
        with pytest.raises(ConfigError, match=f"{verb} was given {name}, which is not supported"):
            use(*NEEDED[verb], **{name: examples})
