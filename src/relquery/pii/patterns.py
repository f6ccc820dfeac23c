"""Personal data that has a form: checked by what its numbers add up to, or named by words before.

`4111 1111 1111 1111` is a card because its digits pass Luhn's check; `C01X00T47` is a passport
where the word stands before it. The words are English, German and French.
Patterns are texts, which `re` compiles when they are first used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from relquery.errors import ConfigError, unknown

BY_FORM = (
    "EMAIL",
    "PHONE_NUMBER",
    "DATE_OF_BIRTH",
    "PAYMENT_CARD_DATA",
    "BANK_ACCOUNT",
    "IP_ADDRESS",
    "NATIONAL_ID",
    "PASSPORT",
    "DRIVERS_LICENSE",
    "TAX_IDENTIFIER",
)
"""Those with a form: rules find them in nearly all texts."""
KINDS = ("NAME", "ADDRESS", *BY_FORM)
"""Those that rules look for."""
OF_MODELS = (*KINDS, "AGE", "GENDER")
"""Those that a model is asked for."""


def kinds_of(value: object, known: Sequence[str] = KINDS) -> tuple[str, ...]:
    """The kinds that `redact` means: all for True, none for False, or a list of names.

    Raises ConfigError.
    """
    if isinstance(value, bool):
        return tuple(known) if value else ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"redact is {value!r}; expected true, false, or a list such as ['NAME'].")
    names = [str(name).upper() for name in value]
    for name in names:
        if name not in known:
            raise ConfigError(unknown("kind of personal data", name, known))
    return tuple(kind for kind in known if kind in names)


class Finding(NamedTuple):
    """Personal data in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


def luhn(digits: str) -> bool:
    """Whether digits pass Luhn's check (ISO/IEC 7812-1)."""
    doubled = (
        int(digit) * 2 if index % 2 else int(digit) for index, digit in enumerate(reversed(digits))
    )
    return sum(digit - 9 if digit > 9 else digit for digit in doubled) % 10 == 0


def iban_length(text: str) -> int | None:
    """How many characters of a text without blanks are an IBAN (ISO 13616); None if it is none."""
    size = _IBAN_SIZES.get(text[:2], 0)
    if not size or len(text) < size:
        return None
    moved = text[4:size] + text[:4]
    return size if int("".join(str(int(character, 36)) for character in moved)) % 97 == 1 else None


_IBAN_SIZES = {
    country: size
    for size, countries in {
        15: "NO", 16: "BE", 18: "DK FI FO GL NL", 19: "MK SI", 20: "AT BA EE KZ LT LU XK",
        21: "CH CR HR LI LV", 22: "BG BH DE GB GE IE ME RS", 23: "AE GI IL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "PT", 26: "IS TR",
        27: "FR GR IT MC MR SM", 28: "AL AZ CY DO HU LB PL", 29: "BR", 31: "MT", 32: "SC",
    }.items()
    for country in countries.split()
}  # fmt: skip
_CARD_SIZES = (
    (r"4", (13, 16, 19)),
    (r"5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)", (16,)),
    (r"3[47]", (15,)),
    (r"30[0-5]|36|38", (14,)),
    (r"6011|64[4-9]|65|35(?:2[89]|[3-8])", (16,)),
    (r"50|5[6-9]|6[0-9]", (16, 18, 19)),
)


def _is_card(text: str) -> bool:
    digits = _digits(text)
    known = any(re.match(prefix, digits) and len(digits) in sizes for prefix, sizes in _CARD_SIZES)
    return known and luhn(digits)


def _is_french_number(text: str) -> bool:
    """Whether the key of a French social security number is that of its digits."""
    plain = text.replace(" ", "").replace("2A", "19").replace("2B", "18")
    return 97 - int(plain[:-2]) % 97 == int(plain[-2:])


def _is_address(text: str) -> bool:
    try:
        return ip_address(text).max_prefixlen == 32 or len(_digits(text)) > 1
    except ValueError:
        return False


def _has_phone_digits(text: str) -> bool:
    return 8 <= len(_digits(text)) <= 15


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A form of personal data. A group `value` is all that is found of it."""

    kind: str
    form: str
    is_valid: Callable[[str], bool] = lambda _: True
    is_sure: bool = True
    """Whether the form says enough, without a word before it."""

    def find(self, text: str) -> Iterator[Finding]:
        """What has the form, in the order of the text."""
        group = "value" if "(?P<value>" in self.form else 0
        for match in re.finditer(self.form, text):
            if self.is_valid(match[group]):
                yield Finding(match.start(group), match.end(group), self.kind)


def _after(kind: str, words: str, value: str, between: int = 24) -> Pattern:
    """A value behind words that say what it is."""
    form = rf"(?i:(?<!\w)(?:{words}))(?![^\W\d])[^\d\n]{{0,{between}}}?"
    return Pattern(kind, rf"{form}(?<!\w)(?P<value>{value})(?!\w)", is_sure=False)


_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|januar|februar|märz|mai|juni|juli|oktober|"
    "dezember|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
)
DATE = (
    rf"(?:\d{{1,2}}[./-]\d{{1,2}}[./-](?:19|20)?\d\d|(?:19|20)\d\d[-/]\d\d?[-/]\d\d?|"
    rf"\d{{1,2}}(?:\.|st|nd|rd|th|er)?(?: of)? (?i:{_MONTHS})\.?,? (?:19|20)\d\d|"
    rf"(?i:{_MONTHS})\.? (?:\d{{1,2}}(?:st|nd|rd|th)?,? )?(?:19|20)\d\d)"
)
_BIRTH = (
    r"born|birth|birth ?date|date of birth|birthday(?:'s)?|d\.?o\.?b\.?|b\.|geboren(?: wurde)?|"
    r"geb\.?(?:-datum)?|geburtsdatum|geburtstag|née?s?|naiss\.?|date de naissance|naissance|"
    r"anniversaire|venue? au monde"
)
_DAY = (
    rf"(?:\d{{1,2}}(?:\.|st|nd|rd|th|er)?(?: of)? (?i:{_MONTHS})|"
    rf"(?i:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?)"
)
_CODE = r"(?=[A-Z0-9 -]*\d[A-Z0-9 -]*\d)[A-Z0-9](?:[ -]?[A-Z0-9]){5,17}"
_PHONE_WORDS = (
    r"telephone|telefon|phone|tel|mobile|mobil|cell|fax|handy|durchwahl|téléphone|portable|"
    r"rufnummer|call|ring|text"
)

_IBAN = r"(?<![A-Za-z0-9])[A-Z]{2}\d\d(?: ?[A-Z0-9]){11,30}"


def _ibans(text: str) -> Iterator[Finding]:
    for match in re.finditer(_IBAN, text):
        plain = match[0].replace(" ", "")
        left = iban_length(plain)
        if left is None:
            continue
        end = match.start()
        while left:
            left -= text[end] != " "
            end += 1
        yield Finding(match.start(), end, "BANK_ACCOUNT")


_LOCAL = r"\w.!#$%&'*+/=?^`{|}~-"
# Repetitions have bounds, so that a long text takes no longer than its length tells.
PATTERNS = (
    Pattern(
        "EMAIL",
        rf"(?<![{_LOCAL}])[{_LOCAL}]{{0,63}}[\w+]@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,5}}"
        r"\.[^\W\d_]{2,24}",
    ),
    Pattern(
        "EMAIL",
        r"(?i)(?<![\w.+-])[\w.+-]{1,64}(?: ?(?:\(at\)|\[at\]|\(arobase\)) ?[\w-]+"
        r"(?: ?(?:\.|\(dot\)|\[dot\]) ?[\w-]+)+| at [\w-]+ dot [a-z]{2,})(?!\w)",
    ),
    Pattern(
        "IP_ADDRESS",
        r"(?<![\w.:])(?<![vV]ersion )(?:\d{1,3}(?:\.\d{1,3}){3}(?![\w.]{0,9}\w)|"
        r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:]))",
        _is_address,
    ),
    Pattern(
        "PAYMENT_CARD_DATA", r"(?<![\w.+-])\d(?:[ .-]?\d){12,18}(?![\w-]{0,9}\d)", _is_card
    ),
    _after("PAYMENT_CARD_DATA", r"cvv2?|cvc2?|cryptogramme|kartenprüfnummer", r"\d{3,4}", 12),
    _after("PAYMENT_CARD_DATA", r"expir(?:y|es?)|exp\.?|gültig bis", r"\d\d ?/ ?\d{2,4}", 12),
    Pattern(
        "NATIONAL_ID",
        r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])",
    ),
    Pattern(
        "NATIONAL_ID",
        r"(?<!\w)(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z]{2}(?: ?\d\d){3} ?[A-D](?!\w)",
    ),
    Pattern(
        "NATIONAL_ID",  # of the German pension insurance, with the day of birth in it
        r"(?<!\w)\d\d ?(?:0[1-9]|[12]\d|3[01])(?:0[1-9]|1[0-2])\d\d ?[A-Z] ?\d{3}(?!\w)",
    ),
    Pattern(
        "NATIONAL_ID",
        r"(?<!\w)[12] ?\d\d ?\d\d ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d(?!\w)",
        _is_french_number,
    ),
    _after(
        "NATIONAL_ID",
        r"ssn|social(?: security)?|national insurance|ni(?:no)?|nhs|national id|id card|id number|"
        r"id no\.?|id-?nr\.?|identity card|identification|ausweisnummer|perso(?:nalausweis)?"
        r"(?:nummer|-?nr\.?)?|ausweis(?:-?nr\.?)?|sv-?n(?:umme)?r\.?|sozialversicherungs\w+|"
        r"rentenversicherungs\w+|sécu(?:rité sociale)?|nir|cni|carte d'identité|numéro d'identité",
        _CODE,
    ),
    _after("PASSPORT", r"passport|reisepass|passnummer|pass-?nr|passeport",
           r"(?:[A-Z]{1,3} )?(?=\w*\d\w*\d)[A-Z0-9]{6,9}"),
    _after(
        "DRIVERS_LICENSE",
        r"driver'?s?'? licen[cs]e|driving licen[cs]e|licen[cs]e(?: number| no)?|führerschein"
        r"(?:nummer)?|permis",
        _CODE,
    ),
    _after(
        "TAX_IDENTIFIER",
        r"tax (?:id|identification|identifier|number)|taxpayer|tin|ein|itin|utr|steuer-?id\w*|"
        r"steuernummer|steuer-?nr|fiscal|fiscale|spi",
        r"[A-Z]{0,2}\d(?:[ /-]?\d){7,14}",
    ),
    _after("DATE_OF_BIRTH", _BIRTH, DATE),
    _after("DATE_OF_BIRTH", _BIRTH, _DAY, 12),
    _after("DATE_OF_BIRTH", r"born in|jahrgang|née? en", r"(?:19|20)\d\d", 1),
    Pattern("DATE_OF_BIRTH", rf"(?<![\w*])\*[ ]?(?P<value>{DATE})(?!\w)", is_sure=False),
    Pattern("DATE_OF_BIRTH", rf"(?<!\w)(?P<value>{DATE})[^\d\n.]{{0,30}}(?<!\w)(?i:geboren|"
            r"geb\.|geburtstag|(?:date of |of )?birth|birthday|d\.?o\.?b|naissance)(?!\w)",
            is_sure=False),
    _after(
        "BANK_ACCOUNT",
        r"account(?: number| no| #)?|acct|kontonummer|konto(?:-?nr)?|kto|compte|rib|routing|"
        r"sort code|bankleitzahl|blz",
        r"\d(?:[ -]?\d){5,22}", 12,
    ),
    Pattern(
        "PHONE_NUMBER",
        r"(?<![\w+])(?:\+|00)[1-9]\d{0,2}(?:[ .()/-]{0,3}\d){6,13}(?![\w-]{0,9}\d)",
        _has_phone_digits,
        is_sure=False,
    ),
    Pattern(
        "PHONE_NUMBER",
        r"(?<![\w(.-])(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-]{0,9}\d)",
        is_sure=False,
    ),
    Pattern(
        "PHONE_NUMBER",
        r"(?<![\w.,/-])(?:0[1-9](?:[ .-]?\d\d){4}|0[157]\d{8,9})(?![\w.-]{0,9}\d)",
        is_sure=False,
    ),
    Pattern(
        "PHONE_NUMBER",
        r"(?<![\w.,/-])(?:\(0\d{2,5}\) ?|0\d{2,5}[ /-]{1,3})\d{2,8}(?:[ -]\d{2,6}){0,3}"
        r"(?![\w./-]{0,9}\d)",
        _has_phone_digits,
        is_sure=False,
    ),
    _after("PHONE_NUMBER", _PHONE_WORDS, r"\d(?:[ ./-]?\d){5,13}", 12),
)  # fmt: skip
"""All but IBANs, in the order in which they claim what two of them find."""


def find_by_form(text: str) -> Iterator[Finding]:
    """Personal data that has a form, sure forms before those that words name."""
    yield from _ibans(text)
    for is_sure in (True, False):
        for pattern in PATTERNS:
            if pattern.is_sure is is_sure:
                yield from pattern.find(text)
