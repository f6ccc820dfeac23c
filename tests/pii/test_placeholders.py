"""Rules for personal data: what has a form, what words tell; and placeholders, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.redact.benchmark import Counts, counted
from benchmarks.redact.sentences import OTHER_GIVEN, OTHER_SURNAMES, by_hand, drawn
from relquery.errors import ConfigError
from relquery.pii.lists import GIVEN, NO_NAMES, OF_OTHERS, SURNAMES
from relquery.pii.patterns import BY_FORM, KINDS, PATTERNS, iban_length, kinds_of, luhn
from relquery.pii.placeholders import Placeholders, find, kind_of_field, put_back

FOUND = [
    # Numbers that their issuers publish as examples, and the same with a digit changed.
    ("4111 1111 1111 1111", "PAYMENT_CARD_DATA"),
    ("4111 1111 1111 1112", None),
    ("378282246310005", "PAYMENT_CARD_DATA"),
    ("378282246310006", None),
    ("GB82 WEST 1234 5698 7654 32", "BANK_ACCOUNT"),
    ("GB82 WEST 1234 5698 7654 33", None),
    ("DE89370400440532013000", "BANK_ACCOUNT"),
    ("FR1420041010050500013M02606", "BANK_ACCOUNT"),
    ("2 55 08 14 168 025 38", "NATIONAL_ID"),
    ("078-05-1120", "NATIONAL_ID"),
    ("666-05-1120", None),
    ("AB 12 34 56 C", "NATIONAL_ID"),
    ("192.168.0.1", "IP_ADDRESS"),
    ("192.168.0.256", None),
    ("2001:db8::8a2e:370:7334", "IP_ADDRESS"),
    ("10:40:30", None),
    ("passport C01X00T47", "PASSPORT"),
    ("article C01X00T47", None),
    ("born 12.03.1985", "DATE_OF_BIRTH"),
    ("sent 12.03.1985", None),
    ("ann.b+c@mail.example.org", "EMAIL"),
    ("(212) 555-0187", "PHONE_NUMBER"),
    ("+49 30 901820", "PHONE_NUMBER"),
    ("order 48213 of 2023-118842", None),
    ("Am Alten Zoll 6, 53111 Bonn", "ADDRESS"),
    ("27 quai des Belges", "ADDRESS"),
    ("2750 Cedar Ridge Drive, Austin, TX 78704", "ADDRESS"),
    ("b. 12 June 1958", "DATE_OF_BIRTH"),
    ("12 June 1958", None),
    ("NHS number 943 476 5919", "NATIONAL_ID"),
    ("65 170839 J 003", "NATIONAL_ID"),
    ("65 173939 J 003", None),
    ("Mrs Xylander", "NAME"),
    ("the Victoria Line", None),
    ("Royal Bank of Scotland", None),
]


@pytest.mark.parametrize(("text", "kind"), FOUND, ids=[text for text, _ in FOUND])
def test_what_has_a_form_is_found_where_its_check_holds(text: str, kind: str | None) -> None:
    assert [one.kind for one in find(f"It says {text}, and more.")] == [kind] * (kind is not None)


def test_one_wrong_digit_fails_a_check() -> None:
    assert all(luhn(f"411111111111{n:04d}") == (sum_of(n)) for n in range(1000, 1200))
    assert iban_length("DE89370400440532013000 and more".replace(" ", "")) == 22
    assert iban_length("DE89370400440532013001") is None


def sum_of(last: int) -> bool:
    """Luhn's check of 411111111111 and four digits, written out."""
    digits = [int(one) for one in f"411111111111{last:04d}"]
    doubled = [sum(divmod(2 * one, 10)) for one in digits[0::2]]
    return (sum(doubled) + sum(digits[1::2])) % 10 == 0


def test_placeholders_are_numbered_per_value_and_reversible() -> None:
    text = "Anna Berger wrote to Marc Dubois. Anna Berger, ann@example.org, [NAME_2]?"
    placeholders = Placeholders(KINDS, [text])
    hidden = placeholders.hide(text)
    assert hidden == "[NAME_1] wrote to [NAME_3]. [NAME_1], [EMAIL_1], [NAME_2]?"
    assert put_back(hidden, placeholders.originals) == text
    assert put_back("NAME_3's, \\[NAME_9]", placeholders.originals) == "Marc Dubois's, \\[NAME_9]"


@given(st.lists(st.sampled_from([one.text for one in by_hand()]) | st.text(), max_size=4))
def test_what_is_hidden_comes_back_whatever_the_texts_are(texts: list[str]) -> None:
    placeholders = Placeholders(KINDS, texts)
    hidden = [placeholders.hide(text) for text in texts]
    assert [put_back(text, placeholders.originals) for text in hidden] == texts


def test_nothing_found_is_left_in_a_hidden_text() -> None:
    for sentence in drawn(60, 3, "tuned"):
        placeholders = Placeholders(KINDS, [sentence.text])
        hidden = placeholders.hide(sentence.text)
        assert all(value not in hidden for value in placeholders.originals.values()), hidden


def test_most_of_what_rough_sentences_tell_is_found_and_little_else() -> None:
    counts: dict[str, Counts] = {}
    for sentence in drawn(400, 0, "tuned"):
        counted(sentence, counts)
    for kind, least in (("NAME", 0.8), ("DATE_OF_BIRTH", 0.9), ("NATIONAL_ID", 0.95)):
        assert (counts[kind].recall or 0) > least, counts[kind]
        assert (counts[kind].precision or 0) > 0.8, counts[kind]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("first_name", "NAME"), ("customerEmail", "EMAIL"), ("movie_title", None), ("name", None)],
)
def test_the_name_of_a_field_may_tell_its_kind(name: str, kind: str | None) -> None:
    assert kind_of_field(name) == kind


def test_kinds_are_all_none_or_a_list() -> None:
    assert {one.kind for one in PATTERNS} == set(BY_FORM)
    assert (kinds_of(True), kinds_of(False), kinds_of(["email"])) == (KINDS, (), ("EMAIL",))
    for wrong in ("NAME", 3, ["SHOE"]):
        with pytest.raises(ConfigError):
            kinds_of(wrong)


def test_names_that_are_held_back_are_in_no_list_of_the_rules() -> None:
    lists = [*OTHER_GIVEN.values(), *OTHER_SURNAMES.values()]
    held = [name for names in lists for name in names]
    assert len(held) > 100
    known = {one.lower() for one in GIVEN | SURNAMES | NO_NAMES | OF_OTHERS}
    assert known.isdisjoint(map(str.lower, held))
