"""LOTUS's own tests with its import changed: python -m tests.frames.lotus.suite FOLDER [PYTEST...].

FOLDER is a checkout of LOTUS, of which a copy is tested. Its models are stand-ins here: a language
model that answers by the rules below, which are what any good model would answer in these tests,
and an embedder whose vectors are the topics of words. Prints a table of files and tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import log
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from relquery.arrays import Float32s
from relquery.backends.base import Backend
from relquery.connection import Connection, connect
from relquery.frames.lotus import clusters
from relquery.frames.lotus.models import lm
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.retrieval.embedder import Embedder

PACKAGE = "relquery.frames.lotus"
_GLAD = (
    "excited|amazing|love|grateful|can't wait|fantastic|great|happy|thrilled|really good|proud|"
    "accomplished|enjoying|awesome|forward|inspired|lovely|as planned|motivated|bring me joy|best"
)
# What a question asks, and for which texts the answer is yes.
YES = (
    (r"positive|recommend", rf"(?i)^(?!.*not recommend).*\b({_GLAD})"),
    (r"at least one apple", r"had two apples|still have one|gave me an apple|received an apple"),
    (r"increasing", r"A, B, C|Lake, Ocean|1, 2, 3"),
    (r"related to cooking", r"(?i)cook|culinary|cuisine"),
    (r"related to computer science", r"(?i)programming|data structures|algorithms"),
    (r"School Type|is a \"right", r"(?=.*(Berkeley|Michigan|Illin|Texas|Washing)).*Public|"
     r"(?=.*(Stanford|Carnegie|MIT|Harvard|Prince|Yale|Cornell|Chicago)).*Private"),
    (r"color", r"blue|green|yellow"),
    (r"is a number", r"\d"),
    (r"basketball", r"basketball"),
    (r"most challenging", r"Number Theory|Thermodynamics|Quantum Mechanics|Molecular Biology"),
    (r"Optimization", r"Optimization"),
)  # fmt: skip
# What a prompt says, and what is answered.
SAYS = (
    (r"(?i)always give a score of 1", "1"),
    (r"lowercase(?s:.*)Berkeley", "ca"), (r"lowercase(?s:.*)Carnegie", "pa"),
    (r"[Ss]tate(?s:.*)Given(?s:.*)Berkeley", "CA"), (r"State(?s:.*)Carnegie", "PA"),
    (r"state (?s:.*)Carnegie", "PA"), (r"most common name", "John"), (r"100 word", "x " * 100),
    (r"comma separated(?s:.*)(Anakin|Luke)", "Anakin, Luke"),
    (r"comma separated", "Michael, Dwight"),
    (r"Summarize(?s:.*)Anakin", "Anakin, Luke"), (r"Summarize(?s:.*)Dwight", "Michael, Dwight"),
    (r"Rate the", "7"), (r"color", "blue"), (r"brief summary|Summarize", "a summary of all of it"),
)  # fmt: skip
# Properties of a schema, and where their values are in a text.
FINDS = (
    (r"quote$", r"(?s)(.+)"), (r"(?i)^explanation", r"()"),
    (r"(?i)number of champ|times", r"(\d+) times"), (r"Sport", r"good (\w+) player"),
    (r"(?i)director", r"directed by (\w+ \w+)"), (r"(?i)year|date", r"(\d{4})"),
    (r"(?i)age", r"is (\d+) years"), (r"(?i)founder", r"founded by (\w+ \w+)"),
    (r"(?i)name|company|info|job|profession|national|answer", r"^\W*(\w+ ?\w*)"),
)  # fmt: skip
TOPICS = (
    r"cook|culinary|cuisine|food|gourmet",
    r"probab|statist|math|optimi|algebra|geometry|linear|riemann",
    r"circuit|architecture|program|algorithm|data struct|computer", r"\b(history|art|atlantic)\b",
    *[r"probab|statist|data|circuit|architecture|algorithm|algebra"] * 3,
    r"harry|potter", r"advanced", r"\bprogramming", r"data structures|algorithms", r"optimizat",
)  # fmt: skip


class ByRule(Backend):
    """A language model that answers by the rules."""

    name = "by-rule"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend."""
        for at, prompt in enumerate(prompts):
            text = "".join(str(span.content) for span in prompt)
            said, scores = self._said(text, sampling)
            yield (
                at,
                Answer(
                    said,
                    Finish.STOP,
                    prompt_tokens=len(text) // 4,
                    output_tokens=len(said) // 2 + 1,
                    scores=scores,
                ),
            )

    def _said(self, text: str, sampling: Sampling) -> tuple[str, dict[str, float] | None]:
        if {*sampling.labels} >= {"Yes", "No"}:
            sure = 0.99 if _is_true(text) else 0.01
            return "Yes" if sure > 0.5 else "No", {"Yes": log(sure), "No": log(1 - sure)}
        if {*sampling.labels} == {"A", "B"}:
            fields = [str(one) for one in _fields(text).values()][-2:]
            return ("A" if len(fields[0]) >= len(fields[1]) else "B"), None
        if sampling.schema is not None:
            schema: Any = sampling.schema
            schema = json.loads(schema) if isinstance(schema, str) else schema
            return json.dumps(_found(schema.get("properties", {}), text)), None
        found = (answer for words, answer in SAYS if re.search(words, text))
        return next(found, "an answer"), None


def _fields(text: str) -> dict[str, Any]:
    """The cells of a prompt in JSON."""
    _, _, data = text.rpartition("data:\n")
    try:
        found = json.loads(data)
    except ValueError:
        return {"text": data}
    return found if isinstance(found, dict) else {"text": found}


def _is_true(text: str) -> bool:
    question = text.partition("\n\nGiven")[0].partition("Examples:")[0]
    cells = " ".join(map(str, _fields(text).values()))
    return any(re.search(asks, question) and re.search(yes, cells) for asks, yes in YES)


def _found(properties: Mapping[str, Any], text: str) -> dict[str, Any]:
    cells = " ".join(map(str, _fields(text).values()))
    values: dict[str, Any] = {}
    for name, kind in properties.items():
        if "boolean" in json.dumps(kind):
            values[name] = _is_true(text)
            continue
        if "integer" in json.dumps(kind):
            values[name] = 2 if "Supervised" in cells else 1
            continue
        where = next((one for asks, one in FINDS if re.search(asks, name)), r"()")
        found = re.search(where, cells)
        values[name] = found[1] if found and found[1] else "as the text says"
    return values


class Topics(Embedder):
    """An embedder whose vectors are the topics of words."""

    name = "topics"

    def embed(self, texts: Sequence[str]) -> Float32s:
        """See Embedder."""
        rows = [
            [*(2.0 * bool(re.search(topic, text.lower())) for topic in TOPICS), *_letters(text)]
            for text in texts
        ]
        return np.array(rows, np.float32)


def _letters(text: str) -> list[float]:
    return [0.02 * text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]


def by_rule(model: object, **options: Any) -> Connection:
    """A connection to the stand-in, whatever model is named. Raises what a provider raises."""
    del model
    ledger = options.get("ledger", ":memory:")
    return connect(ByRule(), form="json", ledger=ledger, embedder=Topics(), progress=False)


@pytest.fixture(autouse=True, scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All models are stand-ins, and caches are in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "connect", by_rule)
        patch.setattr(clusters, "embedder_of", lambda name: Topics())
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


def without_litellm() -> None:
    """Let tests import LiteLLM, which LOTUS asks, where it is not installed. It answers nothing."""
    if find_spec("litellm") is None:
        stub = ModuleType("litellm")
        vars(stub)["completion"] = lambda **_: None
        sys.modules["litellm"] = stub


_COUNTS: dict[str, Counter[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what has become of a test."""
    if report.when == "call" or not report.passed:
        _COUNTS.setdefault(report.nodeid.partition("::")[0], Counter())[report.outcome] += 1


def pytest_terminal_summary() -> None:
    """Print the table."""
    print("\n| file | passed | failed | skipped |\n|---|---|---|---|")
    total: Counter[str] = Counter()
    for file, counts in sorted(_COUNTS.items()):
        print(f"| {file} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
        total += counts
    print(f"| all | {total['passed']} | {total['failed']} | {total['skipped']} |")


def copied(folder: Path, to: Path) -> None:
    """Copy LOTUS's tests with the import changed."""
    shutil.copytree(folder / "tests", to / "unit")
    shutil.copytree(folder / ".github" / "tests", to / "models")
    for path in to.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^(\s*)import lotus$", rf"\1import {PACKAGE} as lotus", text, flags=re.M)
        text = re.sub(r"^(\s*)import lotus\.", rf"\1import {PACKAGE}.", text, flags=re.M)
        text = re.sub(r"^(\s*)from lotus(?=[ .])", rf"\1from {PACKAGE}", text, flags=re.M)
        text = re.sub(r"^(\s*)from tests\.", r"\1from unit.", text, flags=re.M)
        path.write_text(text, encoding="utf-8")


def main(folder: str, *more: str) -> int:
    """Run the tests; returns pytest's exit status."""
    enabled = ("OPENAI", "OLLAMA", "LOCAL")
    os.environ |= {f"ENABLE_{name}_TESTS": "true" for name in enabled} | {"OPENAI_API_KEY": "none"}
    with tempfile.TemporaryDirectory() as place:
        copied(Path(folder), Path(place))
        sys.path.insert(0, place)
        without_litellm()
        files = sorted(str(path) for path in Path(place).rglob("*test*.py"))
        options = ["-p", __spec__.name, "-p", "no:cacheprovider", "-q", "--tb=no", "-o", "addopts="]
        options += ["--rootdir", place, "-W", "ignore", "--continue-on-collection-errors"]
        return int(pytest.main([*options, *more, *files]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
