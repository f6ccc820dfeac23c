"""Sentences of our own with labelled personal data, in English, German and French.

Some are written by hand; the others are templates with values drawn from a seed. Half of the names
are in the lists of the rules, half are not. Numbers pass the checks that real ones do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relquery.pii.lists import GIVEN, SURNAMES
from relquery.pii.patterns import Finding, luhn

LANGUAGES = ("en", "de", "fr")


def _words(texts: dict[str, str]) -> dict[str, list[str]]:
    return {language: text.split() for language, text in texts.items()}


OTHER_GIVEN = _words(
    {
        "en": "Zadie Ottilie Kwame Siobhan Tamsin Rohan Imogen Lachlan Nneka Hollis Cormac Beatrix "
        "Delroy Priyanka Thandiwe Jarrett Odette Wendell Shaniqua Evander",
        "de": "Friedhelm Roswitha Detlef Wiebke Ekkehard Gundula Malte Jannik Swantje Ottfried "
        "Burak Yasemin Lennart Hedwig Traugott Irmgard Enno Fenja Siegbert Almut",
        "fr": "Gwenaëlle Ghislain Solenn Maëlle Firmin Apolline Thibault Océane Gontran Aurore "
        "Mamadou Clothilde Enzo Capucine Fulbert Bérénice Loïc Ysoline Anselme Perrine",
    }
)
"""Given names that the rules do not know."""
OTHER_SURNAMES = _words(
    {
        "en": "Okonkwo Featherstone Mbeki Ravensdale Strickland Abernathy Thistlewood Venkatesan "
        "Pemberton Olusanya Gallowglass Hathersage Nakamura Quisenberry Trelawny Wetherby",
        "de": "Brinkmeier Ostertag Yıldırım Kaltenbach Rademacher Stolzenburg Tiefenthaler "
        "Wachowiak Eickhoff Hülsmann Nettesheim Pröll Quast Vierkötter Zschoche Übelacker",
        "fr": "Kerguelen Bouchareb Vanhoutte Tréhorel Delacourcelle Etchegaray Sissoko Montgolfier "
        "Quéméner Labrousse Pouliquen Benhamou Courtemanche Zimmerlin Fauvergue Lestringant",
    }
)
"""Surnames that the rules do not know."""
_STREETS = _words(
    {
        "en": "Maple Chestnut Kingsbury Larkspur Wellington Orchard Harcourt Sycamore Priory",
        "de": "Ahorn Goethe Lerchen Schiller Mühlen Birken Linden Kastanien Garten",
    }
) | {
    "fr": [
        "de la Fontaine", "des Tilleuls", "Victor Hugo", "du Moulin", "Pasteur", "de Verdun",
        "Jean Moulin", "des Écoles", "de l'Abreuvoir",
    ]
}  # fmt: skip
_ENDS = _words(
    {
        "en": "Street Road Avenue Lane Drive Close Crescent Court Terrace",
        "de": "straße weg allee platz gasse ring",
        "fr": "rue avenue boulevard impasse chemin allée place",
    }
)
_CITIES = {
    "en": [
        "Portland, OR 97205", "Norwich NR2 1TF", "Denver, CO 80203", "Cardiff CF10 3AT",
        "Boise, Idaho 83702",
    ],
    "de": ["20144 Hamburg", "04109 Leipzig", "79098 Freiburg", "60311 Frankfurt am Main"],
    "fr": ["33000 Bordeaux", "59800 Lille", "44000 Nantes", "13006 Marseille"],
}  # fmt: skip
_MONTHS = _words(
    {
        "en": "January February March April May June July August September October",
        "de": "Januar Februar März April Mai Juni Juli August September Oktober",
        "fr": "janvier février mars avril mai juin juillet août septembre octobre",
    }
)
_PLACE = re.compile(r"\{([A-Z_]+)\}|\[([A-Z_]+):([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and the personal data in it. written: by hand. listed: whether names that were
    drawn are in the rules' lists."""

    language: str
    text: str
    labels: tuple[Finding, ...]
    written: bool = False
    listed: bool = False


def by_hand() -> list[Sentence]:
    """The sentences that are written as they are."""
    lines = (line.split(" ", 1) for line in _lines("written.txt"))
    return [_filled(language, text, lambda kind: "", written=True) for language, text in lines]


def drawn(count: int, seed: int, part: str = "held") -> Iterator[Sentence]:
    """Sentences from templates, of each language as many. part: "held" or "tuned"."""
    templates: dict[str, list[str]] = {language: [] for language in LANGUAGES}
    for line in _lines("templates.txt"):
        language, of, text = line.split(" ", 2)
        if of == part:
            templates[language].append(text)
    rng = random.Random(seed)
    for number in range(count):
        language = LANGUAGES[number % len(LANGUAGES)]
        text = templates[language][(number // len(LANGUAGES)) % len(templates[language])]
        values = _Values(language, rng, listed=rng.random() < 0.5)
        yield _filled(language, text, values.draw, listed=values.listed)


def _lines(file: str) -> Iterator[str]:
    for line in (Path(__file__).parent / file).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def _filled(
    language: str,
    template: str,
    draw: Callable[[str], str],
    *,
    written: bool = False,
    listed: bool = False,
) -> Sentence:
    text, labels, end = "", list[Finding](), 0
    for place in _PLACE.finditer(template):
        text += template[end : place.start()]
        value, end = place[3] or draw(place[1]), place.end()
        kind = "NAME" if place[1] == "SURNAME" else place[1] or place[2]
        labels.append(Finding(len(text), len(text) + len(value), kind))
        text += value
    return Sentence(language, text + template[end:], tuple(labels), written, listed)


class _Values:
    """Draws personal data of a language."""

    def __init__(self, language: str, rng: random.Random, *, listed: bool) -> None:
        self.language, self.rng, self.listed = language, rng, listed

    def draw(self, kind: str) -> str:
        """A value of a kind."""
        value: str = getattr(self, kind.lower())()
        return value

    def _pick(self, choices: Sequence[str]) -> str:
        return self.rng.choice(choices)

    def _digits(self, count: int, first: str = "123456789") -> str:
        return self._pick(first) + "".join(self.rng.choices("0123456789", k=count - 1))

    def surname(self) -> str:
        return self._pick(sorted(SURNAMES) if self.listed else OTHER_SURNAMES[self.language])

    def name(self) -> str:
        given = self._pick(sorted(GIVEN) if self.listed else OTHER_GIVEN[self.language])
        kind = self.rng.random()
        if kind < 0.1:
            return given
        if kind < 0.2:
            between = {"en": f"{self._pick('ABDEHJKLMR')}.", "de": "von", "fr": "de"}[self.language]
            return f"{given} {between} {self.surname()}"
        return f"{given} {self.surname()}"

    def email(self) -> str:
        user = self._pick(["r.wells", "info+77", "anke_b", "jp.morin", "x4711", "le-gall"])
        return f"{user}@{self._pick(['example.org', 'mail.example.com', 'firma.example'])}"

    def phone_number(self) -> str:
        two = [f"{self.rng.randrange(100):02d}" for _ in range(4)]
        forms = {
            "en": [
                f"({self._digits(3, '2345')}) 555-{self._digits(4)}",
                f"{self._digits(3, '2345')}-555-{self._digits(4)}",
                f"+1 {self._digits(3, '2345')} 555 {self._digits(4)}",
                f"020 7946 0{self._digits(3)}",
                f"07700 900{self._digits(3)}",
            ],
            "de": [
                f"030 {self._digits(7)}",
                f"0221/{self._digits(6)}",
                f"+49 89 {self._digits(7)}",
                f"0176 {self._digits(8)}",
                f"(0711) {self._digits(3)} {self._digits(4)}",
            ],
            "fr": [
                f"06 {' '.join(two)}",
                f"01.{'.'.join(two)}",
                f"+33 4 {' '.join(two)}",
                f"07{''.join(two)}",
            ],
        }
        return self._pick(forms[self.language])

    def address(self) -> str:
        street, end = self._pick(_STREETS[self.language]), self._pick(_ENDS[self.language])
        number = self.rng.randrange(1, 240)
        if self.language == "en":
            line = f"{number} {street} {end}"
        elif self.language == "de":
            line = f"{street}{end} {number}"
        else:
            line = f"{number}{self._pick(['', ' bis', ','])} {end} {street}"
        city = self._pick(_CITIES[self.language])
        return line if self.rng.random() < 0.4 else f"{line}, {city}"

    def date_of_birth(self) -> str:
        day, month = self.rng.randrange(1, 29), self.rng.randrange(1, 11)
        year = self.rng.randrange(1938, 2007)
        word = _MONTHS[self.language][month - 1]
        forms = {
            "en": [f"{month:02d}/{day:02d}/{year}", f"{day} {word} {year}", f"{word} {day}, {year}",
                   f"{year}-{month:02d}-{day:02d}"],
            "de": [f"{day:02d}.{month:02d}.{year}", f"{day}. {word} {year}"],
            "fr": [f"{day:02d}/{month:02d}/{year}", f"{day} {word} {year}"],
        }  # fmt: skip
        return self._pick(forms[self.language])

    def payment_card_data(self) -> str:
        begin = self._pick(["4", "51", "5425", "6011", "2221"])
        body = begin + "".join(self.rng.choices("0123456789", k=15 - len(begin)))
        digits = next(body + last for last in "0123456789" if luhn(body + last))
        between = self._pick(["", " ", "-"])
        return between.join(digits[index : index + 4] for index in range(0, 16, 4))

    def bank_account(self) -> str:
        country, body = {
            "en": ("GB", f"WEST{self._digits(14)}"),
            "de": ("DE", self._digits(18)),
            "fr": ("FR", self._digits(23)),
        }[self.language]
        digits = "".join(str(int(character, 36)) for character in f"{body}{country}00")
        whole = f"{country}{98 - int(digits) % 97:02d}{body}"
        if self.rng.random() < 0.5:
            return whole
        return " ".join(whole[index : index + 4] for index in range(0, len(whole), 4))

    def ip_address(self) -> str:
        four = ".".join(str(self.rng.randrange(1, 255)) for _ in range(4))
        return self._pick([four, four, f"2001:db8::{self.rng.randrange(16, 65000):x}"])

    def national_id(self) -> str:
        if self.language == "de":
            return f"{self._pick('LMPR')}{self._digits(2)}X{self._digits(2)}T{self._digits(3)}"
        if self.language == "fr":
            body = f"{self._pick('12')}{self.rng.randrange(40, 99)}{self.rng.randrange(1, 13):02d}"
            body += f"{self.rng.randrange(1, 95):02d}{self._digits(3)}{self._digits(3)}"
            key = f"{97 - int(body) % 97:02d}"
            parts = (body[:1], body[1:3], body[3:5], body[5:7], body[7:10], body[10:], key)
            return " ".join(parts)
        ssn = f"{self._digits(3, '1234')}-{self._digits(2)}-{self._digits(4)}"
        return self._pick([ssn, f"AB {' '.join(self._digits(2) for _ in range(3))} C"])

    def passport(self) -> str:
        two, number = [self._digits(2) for _ in range(3)], self._digits(9)
        german = f"C{two[0]}X{two[1]}T{two[2]}"
        return {"en": number, "de": german, "fr": f"{two[0]}AB{number[:5]}"}[self.language]

    def drivers_license(self) -> str:
        forms = {"en": f"D{self._digits(7)}", "de": f"B{self._digits(3)}RRE{self._digits(1)}I55"}
        return forms.get(self.language, self._digits(12))

    def tax_identifier(self) -> str:
        if self.language == "en":
            return f"{self._digits(2)}-{self._digits(7)}"
        if self.language == "de":
            slashes = f"{self._digits(2)}/{self._digits(3)}/{self._digits(5)}"
            return self._pick([slashes, self._digits(11)])
        return f"{self._digits(2)} {self._digits(2)} {' '.join(self._digits(3) for _ in range(3))}"
