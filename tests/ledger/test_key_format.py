"""The written format of keys, with the digest of every kind, and keys of earlier versions."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relquery.ledger import Keys, Ledger, answer_keys, look_up
from relquery.ledger.folder import FolderLedger
from relquery.ledger.older_keys import older_keys
from relquery.prompt import (
    Adjustments,
    Answer,
    Blank,
    Compared,
    Exchange,
    Finish,
    Nest,
    Reuse,
    Role,
    Sampling,
    Span,
)
from relquery.tools import Function, ToolCall, ToolResult, Tools, ToolUse
from tests.ledger.test_ledger import write_earlier

WEATHER = Function("weather", "Of a day.", '{"type": "object"}')
PROMPTS = {
    "text": (Span("Be brief.", Role.SYSTEM), Span("é\ud800")),
    "marks": (
        Span("a", begins=True, position=7),
        Span("b", Role.ASSISTANT, Reuse.INDEPENDENT, open=True, keep=3, keep_for=60.0, shares=True),
    ),
    "raw": (Span("<s>a", Role.NONE, raw=True),),
    "tokens": (Span((1, 2)), Span(())),
    "nest": (
        Span(Nest((Span("a"), Span((3,), reuse=Reuse.INDEPENDENT, position=2)))),
        Span(Nest((Span(Blank(4)), Span(Blank((5,)))))),
    ),
    "exchange": (Span(Exchange((Span("Tea?", Role.TOOL),), (8, 9)), reuse=Reuse.INDEPENDENT),),
    "tools": (
        Span(Tools((WEATHER, Function("now"))), Role.SYSTEM),
        Span(ToolCall("1", "weather", "{}"), Role.ASSISTANT),
        Span(ToolResult("1", "weather", "rain"), Role.TOOL),
    ),
}
SAMPLINGS = {
    "usual": Sampling(),
    "drawn": Sampling(7, 0.5, 0.9, 3, 11, ("#", "\n")),
    "labels": Sampling(labels=("Yes", "Nö"), scored=True, told=True),
    "schema": Sampling(schema='{"type": "integer"}'),
    "grammar": Sampling(grammar="start: /a/"),
    "adjusted": Sampling(
        adjustments=Adjustments(1.5, logit_bias=((7, -1.0), (3, 0.25)), min_tokens=2)
    ),
    "called": Sampling(tools=ToolUse((WEATHER,), "weather", False)),
    "compared": Compared.by(Sampling(max_tokens=3), ("Yes", "No")),
}

DIGESTS = {
    # what is asked: (the key, the key before format 2)
    "text": (
        "60b56558105bf1bd211fcbab2ac6ed9937ab27b829c2c14eed6714c096ce01cb",
        "a39857f776354a63c5f66995dac6ffd3a27c21613141fdfa6f0d80a1c5a8ce27",
    ),
    "marks": (
        "3f6d61c7068a27aa2f4746a8c98413054dd1d8cf573931b185210b8079b6589f",
        "024c0728d21bdd50da904c00625d1c3a9e65826e5f5ce865e49d3b5dd8fcca48",
    ),
    "raw": (
        "9cd28bf05c5c875154a1b3dea64adada41242f791754b5158437860be3827422",
        "b043422e205a0201f964e71f1b015ea020fb364e3f9e11b271c60b4e5f72331c",
    ),
    "tokens": (
        "8d5376e8b900dde83c365d7bd9fa25ec1ea951c96521ecc6f3940e8685759d81",
        "981e9cf27021a02e8b606420ccf74aca21b4bf44ca1e18dcde2c66416e97e630",
    ),
    "nest": (
        "45ba051da2db1d0c27722cbc77a426f1b50a5f76c276ed8612a2fb309c7a1470",
        "f64e03054a3f0e67f1523f939eb44dbf2f06de7482cbdb282e62e93edd439685",
    ),
    "exchange": (
        "43ad222bc3631c0d8012374c0f481eb0f6a0b57b80b2a41b9551b19d4ce2476a",
        "b9ec989de94b28ea3725d886e561824574e113c2405fc493a34129754c98ea9b",
    ),
    "tools": (
        "7567080eb65931814f76daddfe42e7c9ff6b7e6d564b611e1dbbe8741c0707ec",
        "ddea85fb5638ba00d7842a270e3ed101e9f64c6c06113d94fa6520d0bbad1571",
    ),
    "usual": (
        "60b56558105bf1bd211fcbab2ac6ed9937ab27b829c2c14eed6714c096ce01cb",
        "a39857f776354a63c5f66995dac6ffd3a27c21613141fdfa6f0d80a1c5a8ce27",
    ),
    "drawn": (
        "6a5b68fe057bfe14f76124d2f88ed289a3c62272e8b5b02968de8c24682c500d",
        "274371a318a82cc404ea1e016be4b44d64f41f683ec204098fdd5f4a0b112089",
    ),
    "labels": (
        "25d71c268b889bf1f4fdc5f596ba4b6fa0a1b7d7527c4363986e2dfa9b2dca0a",
        "cd3847027a0db99badb57a61ffee6ee9b0345b0833717f889316c7b50baaba8a",
    ),
    "schema": (
        "8829cf6bc1e51a1e0e63443bb98b51d9691a917a382c87b9895f9f59de5bbd99",
        "284b59cfa29a1e206f87f0893e3bbf8a72221beaba4a508f1549b86ae25997fe",
    ),
    "grammar": (
        "89ebbde57081c09d96355eb5a9e38f4389fe0c446e46a017ff066ca8662497c7",
        "fa696a5dbde8c1e74600397f31ead5d467cb804a058d355bdfd7cc1e298a775b",
    ),
    "adjusted": (
        "8e0cd2c30f3a998aca3e7d1c48adba2d083a69e28bc7f539c0b8258d0d2caafa",
        "6ad7340e6ee991cf9832d950c59cf4584b1b038b0e7eb39244e87b0e140b9a87",
    ),
    "called": (
        "b78c3e52e59348a04c88c54feeeb095b629d11675ddd8c2c2fb45139682503dc",
        "575dc884084de3ba9e64ab521b9ffc2a248cab56462b1f0c6835769ef8378376",
    ),
    "compared": (
        "9edf50e17443084f0c36bc832df0c9262e5fd183ba99716da160702b9aa4d64a",
        "9840cc4abe2d5137ee676b5f621e5d9a311d27edc18478f6a6ca4bfe0e44795d",
    ),
}


@pytest.mark.parametrize("name", DIGESTS)
def test_the_key_of_each_kind_of_prompt_and_sampling_stays(name: str) -> None:
    prompt, sampling = PROMPTS.get(name, PROMPTS["text"]), SAMPLINGS.get(name, Sampling())
    keys = [make("openai:m", [prompt], sampling)[0].hex() for make in (answer_keys, older_keys)]
    assert tuple(keys) == DIGESTS[name]


def test_a_key_is_the_hash_of_what_the_documentation_says() -> None:
    head = (
        'relquery 2\n"openai:m"\n{"labels":["Yes","N\\u00f6"],"max_tokens":256,"scored":true,'
        '"seed":null,"stop":[],"temperature":0,"told":true,"top_k":0,"top_p":1}\n'
    )
    nest = "text user prefix 1\natokens user independent at 2 3\n[3]"
    blanks = "blank user prefix 1\n4blank user prefix 3\n[5]"
    written = f"{head}nest user prefix {len(nest)}\n{nest}nest user prefix {len(blanks)}\n{blanks}"
    (key,) = answer_keys("openai:m", [PROMPTS["nest"]], SAMPLINGS["labels"])
    assert key == hashlib.sha256(written.encode()).digest()


def test_numbers_that_are_equal_have_one_key() -> None:
    keys = [answer_keys("m", [(Span("x"),)], Sampling(temperature=one)) for one in (0, 0.0, 0.5)]
    assert keys[0] == keys[1] != keys[2]


def test_a_setting_that_comes_later_changes_the_keys_where_it_is_set_alone() -> None:
    @dataclass(frozen=True, slots=True)
    class Later(Sampling):
        effort: str = "usual"

    for make in (answer_keys, older_keys):
        samplings = (Sampling(), Later(), Later(effort="high"))
        keys = [make("m", [(Span("x"),)], sampling) for sampling in samplings]
        assert keys[0] == keys[1] != keys[2]


# Answers that earlier versions stored are found.

ANSWER = Answer("Yes", Finish.STOP, prompt_tokens=5, output_tokens=2, attempts=0)


def write_format_1(path: Path, keys: list[bytes]) -> None:
    """A ledger as versions before format 2 wrote it."""
    write_earlier(path, dict.fromkeys(keys, "Yes"))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 1")


def test_every_kind_of_answer_is_found_in_an_older_ledger_also_under_a_mark(tmp_path: Path) -> None:
    prompts, mark = list(PROMPTS.values()), "fields reordered"
    for name, sampling in SAMPLINGS.items():
        path = tmp_path / name
        found = Keys(older_keys("m", prompts[:4], sampling), [])
        write_format_1(path, found.whole[:2] + found.marked(mark).whole[2:])
        with closing(Ledger.open(path)) as ledger:
            keys, known = look_up(ledger, ["m", "earlier"], prompts, sampling)
            finish = Finish.DECIDED if isinstance(sampling, Compared) else Finish.STOP
            assert known == dict.fromkeys((0, 1), replace(ANSWER, finish=finish))
            assert set(ledger.find(keys.marked(mark))) == {2, 3}
            assert set(ledger.find(keys.part([4, 1, 0]))) == {1, 2}
            ledger.put([keys.entry(5, ANSWER)])
            assert set(ledger.find(keys)) == {0, 1, 5}


def test_a_new_ledger_is_looked_up_once_and_an_older_one_stays_readable(tmp_path: Path) -> None:
    with closing(Ledger.open(tmp_path / "new.db")) as ledger:
        assert look_up(ledger, ["m"], list(PROMPTS.values()), Sampling())[0].older == ()
    write_format_1(tmp_path / "old.db", [])
    for _ in range(2):
        with closing(Ledger.open(tmp_path / "old.db")) as ledger:
            assert len(look_up(ledger, ["m"], [], Sampling())[0].older) == 1


def test_lines_of_an_older_folder_are_found(tmp_path: Path) -> None:
    prompts = list(PROMPTS.values())
    earlier = Keys(older_keys("m", prompts, Sampling()), [])
    with closing(FolderLedger(tmp_path, "a-0", "0")) as ledger:
        ledger.put([earlier.entry(1, ANSWER)])
    (lines,) = (path.read_text().splitlines() for path in tmp_path.iterdir())
    with closing(FolderLedger(tmp_path, "b-0", "0")) as ledger:
        assert look_up(ledger, ["m"], prompts, Sampling()) == (
            Keys.of("m", prompts, Sampling()),
            {},
        )
        ledger.know(lines)
        keys, known = look_up(ledger, ["m"], prompts, Sampling())
        assert known == {1: ANSWER}
        assert not ledger.lent.isdisjoint(keys.of_prompt(1))
