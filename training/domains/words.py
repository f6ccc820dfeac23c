"""Word pools and the names built from them: people, outlets, titles."""

from __future__ import annotations

from random import Random

from training.domains.split import Split


def pool(text: str) -> tuple[str, ...]:
    """The words of `text`."""
    return tuple(text.split())


FIRST_NAMES = pool(
    "Alice Amir Anna Bela Boris Carla Carmen Clara Daniel David Diego Elena Emil Emma Erik Eva "
    "Felix Fiona Frank George Grace Hana Hugo Ines Ivan Jack James Jana Julia Karim Kate Kenji "
    "Laura Leo Lena Linda Lucas Luisa Marco Maria Martin Maya Mina Nadia Nina Noah Nora Oscar "
    "Otto Paula Peter Rosa Ruth Samir Sara Simon Sofia Tara Tom Vera Victor Wendy Yusuf Zoe"
)
LAST_NAMES = pool(
    "Adams Bauer Becker Bell Berg Blake Brandt Brooks Byrne Carter Chen Cole Costa Cruz Dahl "
    "Diaz Dunn Ellis Evans Fischer Flores Ford Foster Garcia Gomez Grant Gray Hale Hansen Hart "
    "Hayes Holm Hughes Ito Jensen Jones Keller Khan Kim Klein Kovacs Kumar Lang Larsen Lee Lopez "
    "Mann Marsh Meyer Mills Moreau Mori Moss Murphy Nash Novak Okafor Olsen Ortega Owens Park "
    "Perez Petrov Price Quinn Reed Reyes Rossi Roth Ruiz Santos Sato Schmidt Shah Silva Singh "
    "Stone Suzuki Tanaka Torres Vargas Wagner Walsh Ward Weber Wells Wong Young Zeller"
)
CITIES = pool(
    "Austin Bergen Berlin Boston Bristol Cairo Chicago Denver Dublin Geneva Genoa Hamburg "
    "Houston Lagos Lima Lisbon London Lyon Madrid Milan Munich Nairobi Naples Oslo Ottawa Paris "
    "Porto Prague Quito Rome Seattle Seoul Sydney Tokyo Turin Vienna Warsaw Zurich"
)
WEEKDAYS = pool("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
PAPERS = pool("Herald Times Post Gazette Journal Tribune Courier Review Chronicle Observer")

TITLE_ADJECTIVES = pool(
    "Amber Ancient Bitter Black Blue Broken Burning Cold Copper Crimson Distant Empty Endless "
    "Fallen Final First Forgotten Frozen Gentle Golden Green Hidden Hollow Iron Last Little "
    "Lonely Lost Lucky Midnight Northern Pale Paper Quiet Red Restless Sacred Secret Seventh "
    "Silent Silver Sleeping Southern Stolen Strange Sunken Velvet White Wild Winter"
)
TITLE_NOUNS = pool(
    "Anchor Angel Bridge Captain Castle Circus Coast Crown Dancer Desert Door Dragon Dream "
    "Echo Falcon Feather Fire Forest Fortune Garden Ghost Harbor Harvest Heart Hill Horizon "
    "Hotel Island Journey King Lantern Letter Lighthouse Mirror Moon Mountain Ocean Orchard "
    "Painter Palace Pilot Promise Queen Rain River Road Sailor Shadow Ship Song Star Station "
    "Storm Summer Thief Tower Train Valley Village Violin Voyage Wall Widow Wind Window Wolf"
)


def person(rng: Random, split: Split) -> str:
    """A first and a last name: "Elena Novak"."""
    return split.draw(lambda: f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}")


def outlet(rng: Random) -> str:
    """A newspaper: "Lisbon Herald". Drawn from one pool on both sides of the split."""
    return f"{rng.choice(CITIES)} {rng.choice(PAPERS)}"


def movie_title(rng: Random, split: Split) -> str:
    """A title of known words: "The Silver Harbor", "Song of the Wolf"."""
    return split.draw(lambda: _title(rng))


def _title(rng: Random) -> str:
    adjective, noun, other = (
        rng.choice(TITLE_ADJECTIVES),
        rng.choice(TITLE_NOUNS),
        rng.choice(TITLE_NOUNS),
    )
    form = rng.randrange(6)
    if form < 3:
        return f"The {adjective} {noun}"
    if form == 3:
        return f"{adjective} {noun}"
    if form == 4:
        return f"{noun} of the {other}"
    return f"The {noun} and the {other}"
