"""Placeholders for the personal data of a row, and the data back in their place.

    Anna Kowalski, anna@example.org  =>  [NAME_1], [EMAIL_1]

The same text has the same placeholder within a row, so a model sees who is who.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from relquery.pii.patterns import KINDS, OF_MODELS, Finding, find_by_form
from relquery.pii.persons import find_addresses, find_names

_NUMBERED = rf"\[?\b({'|'.join(OF_MODELS)})_(\d+)\b\]?"
_WORDS = r"[A-Z]?[a-zà-ÿ]+|[A-Z]+(?![a-z])"
_FIELDS = {
    "NAME": "firstname lastname surname fullname givenname familyname middlename vorname nachname "
    "familienname prénom prenom nomdefamille customername clientname patientname employeename "
    "contactname personname username",
    "EMAIL": "email emailaddress mail courriel",
    "PHONE_NUMBER": "phone phonenumber telephone mobile telefon telefonnummer téléphone tel",
    "ADDRESS": "address streetaddress postaladdress homeaddress street straße adresse anschrift",
    "DATE_OF_BIRTH": "dob dateofbirth birthdate birthday geburtsdatum datedenaissance",
    "BANK_ACCOUNT": "iban accountnumber kontonummer",
    "PAYMENT_CARD_DATA": "cardnumber creditcard creditcardnumber",
    "NATIONAL_ID": "ssn nationalid socialsecuritynumber",
    "PASSPORT": "passport passportnumber",
    "TAX_IDENTIFIER": "taxid steuerid steuernummer",
    "DRIVERS_LICENSE": "driverslicense licensenumber",
    "IP_ADDRESS": "ip ipaddress clientip",
}
_KIND_OF_FIELD = {name: kind for kind, names in _FIELDS.items() for name in names.split()}


@lru_cache(maxsize=1 << 14)
def find(text: str, kinds: tuple[str, ...] = KINDS) -> tuple[Finding, ...]:
    """Personal data in a text, in its order, no two of it overlapping."""
    kept: list[Finding] = []
    for finding in _candidates(text):
        if finding.kind not in kinds:
            continue
        touched = [
            other for other in kept if other.start < finding.end and finding.start < other.end
        ]
        parts = (*touched, finding)  # all of both is hidden, as what is surer
        start, end = min(part.start for part in parts), max(part.end for part in parts)
        kept = [other for other in kept if other not in touched]
        kept.append(Finding(start, end, parts[0].kind))
    return tuple(sorted(kept))


def _candidates(text: str) -> Iterator[Finding]:
    """What the rules find, the surest first."""
    yield from find_by_form(text)
    yield from find_addresses(text)
    yield from find_names(text)


def kind_of_field(name: str) -> str | None:
    """The kind that all values of a field are, by its name: `first_name`, `customerEmail`."""
    words = [word.lower() for word in re.findall(_WORDS, name)]
    tails = ("".join(words[index:]) for index in range(len(words)))
    return next((_KIND_OF_FIELD[tail] for tail in tails if tail in _KIND_OF_FIELD), None)


@dataclass(slots=True)
class Placeholders:
    """The placeholders of one row."""

    kinds: tuple[str, ...]
    """The kinds of personal data that are replaced."""
    given: Iterable[str] = ()
    """All texts of the row, whose own placeholders are left alone."""
    originals: dict[str, str] = field(default_factory=dict)
    """The data by placeholder, which is without brackets here."""
    _known: dict[tuple[str, str], str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        matches = (match for text in self.given for match in re.finditer(_NUMBERED, text))
        self._taken = {f"{match[1]}_{match[2]}" for match in matches}

    def hide(self, text: str, field_name: str = "") -> str:
        """A text with placeholders. field_name: of the field whose whole value it is."""
        kind = kind_of_field(field_name) if field_name else None
        if kind in self.kinds and text.strip():
            return self._placeholder(str(kind), text)
        parts, end = list[str](), 0
        for finding in find(text, self.kinds):
            value = text[finding.start : finding.end]
            parts += [text[end : finding.start], self._placeholder(finding.kind, value)]
            end = finding.end
        return "".join((*parts, text[end:]))

    def _placeholder(self, kind: str, value: str) -> str:
        if (kind, value) not in self._known:
            number = 1
            while f"{kind}_{number}" in self._taken:
                number += 1
            name = self._known[kind, value] = f"{kind}_{number}"
            self._taken.add(name)
            self.originals[name] = value
        return f"[{self._known[kind, value]}]"


def put_back(text: str, originals: Mapping[str, str]) -> str:
    """A text with the data in place of placeholders; those of no data stay."""

    def original(match: re.Match[str]) -> str:
        return originals.get(f"{match[1]}_{match[2]}", match[0])

    return re.sub(_NUMBERED, original, text) if originals else text


def has_placeholder(text: str) -> bool:
    """Whether a text may have a placeholder with a number."""
    return re.search(_NUMBERED, text) is not None
