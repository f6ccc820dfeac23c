"""The `products` domain: customer reviews joined with the product they are about."""

from __future__ import annotations

from random import Random

from training.domains.asks import copy_asks, feeling, sentiment_asks
from training.domains.rows import Ask, Domain, Kind, Parent, Row, Value, yes
from training.domains.sentiment import draw_rating, review
from training.domains.split import Split
from training.domains.words import CITIES, WEEKDAYS, person, pool

# For each category: the things sold, and what they are for.
GOODS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Kitchen": (
        ("Kettle", "Pan", "Toaster", "Blender"),
        ("for cooking at home", "to prepare breakfast quickly", "for boiling and frying food"),
    ),
    "Garden": (
        ("Rake", "Shovel", "Hose", "Planter"),
        ("for flower beds and lawns", "to keep plants healthy", "for digging and watering"),
    ),
    "Audio": (
        ("Speaker", "Radio", "Headset", "Microphone"),
        ("for clear sound in every room", "to listen to songs and news", "for recording voices"),
    ),
    "Sports": (
        ("Racket", "Bicycle", "Helmet", "Treadmill"),
        ("for training every day", "to get fit again", "for players of every level"),
    ),
    "Toys": (
        ("Puzzle", "Kite", "Robot", "Dollhouse"),
        ("for children from age four", "to play with friends", "for hours of play"),
    ),
    "Office": (
        ("Printer", "Stapler", "Desk", "Notebook"),
        ("for letters and reports", "to keep your papers in order", "for work at a desk"),
    ),
}
CATEGORIES = tuple(GOODS)
STYLES = pool(
    "Oak Maple Arctic Royal Nova Prime Urban Classic Compact Solar Swift Bold Bright Coral Delta "
    "Eagle Ember Fusion Glacier Jade Lunar Metro Nordic Onyx Orbit Pearl Pixel Polar Ruby Safari "
    "Sierra Sonic Terra Titan Turbo Ultra Vega Vista Zen Zephyr"
)
BRANDS = pool(
    "Acorn Altus Bexley Corvo Damaro Elmwood Fentro Garnet Halden Ivory Juno Kestrel Lomar "
    "Mirano Nexon Orvell Pinecrest Quanta Rivetto Solano Tandem Umbra Velora Westbrook"
)
MATERIALS = pool("steel aluminium bamboo plastic glass rubber leather carbon")
COLOURS = pool("black white red blue green grey yellow orange")
OUTDOOR = (
    "It may stay outside in any weather.",
    "Built for outdoor use.",
    "Rain and snow do it no harm.",
    "Weatherproof and ready for camping.",
)
INDOOR = (
    "Keep it inside and dry.",
    "Built for indoor use only.",
    "It must not get wet.",
    "Do not use it in the open air.",
)
ASPECTS = pool("handle finish design size weight quality surface packaging manual case")
FIELDS = (
    "reviewtext",
    "reviewer",
    "city",
    "productname",
    "description",
    "category",
    "brand",
    "price",
)


def _description(rng: Random, category: str, outdoor: bool) -> str:
    sentences = [
        f"Made {rng.choice(GOODS[category][1])}.",
        f"The body is of {rng.choice(COLOURS)} {rng.choice(MATERIALS)}"
        f" and comes with a warranty of {rng.choice(('two', 'three', 'five', 'ten'))} years.",
        rng.choice(OUTDOOR if outdoor else INDOOR),
    ]
    return " ".join(sentences)


def product(rng: Random, split: Split) -> Parent:
    """A product: name, description, category, brand, price in whole dollars."""
    category, outdoor = rng.choice(CATEGORIES), rng.random() < 0.5
    goods = GOODS[category][0]
    fields: dict[str, Value] = {
        "productname": split.draw(
            lambda: f"{rng.choice(STYLES)} {rng.choice(STYLES)} {rng.choice(goods)}"
        ),
        "description": split.draw(lambda: _description(rng, category, outdoor)),
        "category": category,
        "brand": rng.choice(BRANDS),
        "price": rng.randrange(5, 500),
    }
    return Parent(fields, {"category": category, "outdoor": outdoor, "quality": rng.randint(1, 5)})


def _filler(rng: Random) -> str:
    return rng.choice(
        (
            f"it arrived on a {rng.choice(WEEKDAYS)}",
            f"I ordered the {rng.choice(COLOURS)} one",
            f"I bought it as a gift for {rng.choice(('my sister', 'a friend', 'my father'))}",
            f"I have had it for {rng.choice(('two', 'three', 'six'))} months",
        )
    )


def review_of(rng: Random, split: Split, parent: Parent) -> Row:
    """A review of `parent` by some buyer."""
    rating = draw_rating(rng, int(parent.facts["quality"]))
    fields: dict[str, Value] = {
        "reviewtext": review(rng, split, rating, ASPECTS, lambda: _filler(rng)),
        "reviewer": person(rng, split),
        "city": rng.choice(CITIES),
    }
    return parent.join(fields, {"rating": rating})


_NAMES = ", ".join(CATEGORIES[:-1]) + " or " + CATEGORIES[-1]

PRODUCTS = Domain(
    "products",
    product,
    review_of,
    (
        *sentiment_asks("reviewtext", "reviewer", "product"),
        Ask(
            Kind.LABEL,
            "category",
            (
                f"Which category is the product: {_NAMES}?",
                f"Classify the product as {_NAMES}.",
                "What is the category of the product? Answer with the category only.",
            ),
            ("description",),
            lambda row: str(row.facts["category"]),
        ),
        Ask(
            Kind.FILTER,
            "outdoor",
            (
                "Is the product for outdoor use? Answer Yes or No.",
                "Can the product be used outside? Answer Yes or No.",
                "May the product get wet? Answer Yes or No.",
            ),
            ("description",),
            lambda row: yes(bool(row.facts["outdoor"])),
        ),
        *copy_asks(FIELDS),
        Ask(
            Kind.SUMMARY,
            "summary",
            (
                "Summarize the review in one sentence.",
                "Summarize the review of the product in one sentence.",
                "In one sentence, what did the reviewer think of the product?",
                "Give a short summary of the review.",
            ),
            ("reviewtext", "productname"),
            lambda row: f"The reviewer {feeling(row)} the {row.fields['productname']}.",
        ),
    ),
)
