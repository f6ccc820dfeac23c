"""The `tickets` domain: support tickets joined with the product they are about."""

from __future__ import annotations

from random import Random

from training.domains.asks import copy_asks
from training.domains.products import STYLES
from training.domains.rows import Ask, Domain, Kind, Parent, Row, Value, yes
from training.domains.split import Split
from training.domains.words import CITIES, WEEKDAYS, person, pool

PROBLEMS: dict[str, tuple[str, ...]] = {
    "billing": (
        "I was charged twice on my invoice",
        "the refund has not reached my bank account",
        "my credit card was charged by mistake",
        "the amount on the bill is too high",
    ),
    "delivery": (
        "the parcel has not arrived",
        "the courier left the box at a wrong address",
        "the tracking page shows no shipment",
        "my order was shipped to the old street",
    ),
    "login": (
        "I forgot my password",
        "the sign in page rejects my password",
        "my user name is locked",
        "the code for signing in never comes",
    ),
    "repair": (
        "the screen is cracked",
        "the power button does not respond",
        "the device makes a loud noise and stops",
        "the cable is broken",
    ),
    "contract": (
        "I want to cancel my subscription",
        "please end my plan",
        "I would like to change to a smaller plan",
        "my contract was renewed without my consent",
    ),
}
TOPICS = tuple(PROBLEMS)
URGENT = (
    "Please help at once",
    "We cannot work until this is solved",
    "This cannot wait",
    "I need an answer within the hour",
    "It is an emergency",
)
CALM = (
    "There is no hurry",
    "Take your time",
    "Any day this month is fine",
    "It can wait until next week",
    "I am in no rush",
)
ANGRY = (
    "I am furious about this service",
    "This is outrageous",
    "I am sick of your excuses",
    "You have made me very angry",
)
POLITE = (
    "Thank you for your kind help",
    "I appreciate your support",
    "Best wishes to your team",
    "I am grateful for your work",
)
DEVICES = pool(
    "Router Laptop Phone Tablet Camera Monitor Scanner Modem Keyboard Projector Watch Charger"
)
PLANS = ("Free", "Basic", "Team", "Business", "Premium")
USES = ("homes", "schools", "small offices", "shops", "hospitals", "factories", "libraries")
FEATURES = (
    "a metal case",
    "two spare batteries",
    "a bright display",
    "a long cable",
    "a folding stand",
    "an extra memory card",
)
FIELDS = (
    "message",
    "customer",
    "ticketid",
    "plan",
    "product",
    "productinfo",
    "supplier",
    "released",
)


def device(rng: Random, split: Split) -> Parent:
    """A product under support: name, description, supplier, year of release."""
    name = split.draw(
        lambda: (
            f"{rng.choice(STYLES)} {rng.choice(DEVICES)} {rng.choice('XYZ')}{rng.randrange(100)}"
        )
    )
    fields: dict[str, Value] = {
        "product": name,
        "productinfo": split.draw(lambda: _info(rng)),
        "supplier": split.draw(lambda: f"{rng.choice(CITIES)} {rng.choice(STYLES)} Systems"),
        "released": rng.randrange(2005, 2025),
    }
    return Parent(fields, {})


def _info(rng: Random) -> str:
    first, second = rng.sample(FEATURES, 2)
    return (
        f"A device for {rng.choice(USES)} with {first} and {second}."
        f" Sold in {rng.choice(CITIES)} and {rng.choice(CITIES)}."
    )


def _message(rng: Random, topic: str, urgent: bool, angry: bool) -> str:
    sentences = [
        _problem(rng, topic),
        rng.choice(URGENT if urgent else CALM),
        rng.choice(ANGRY if angry else POLITE),
    ]
    if rng.random() < 0.3:
        sentences.append(f"I wrote to you on {rng.choice(WEEKDAYS)}")
    rng.shuffle(sentences)
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def _problem(rng: Random, topic: str) -> str:
    since = rng.choice(("", "", f" since {rng.choice(WEEKDAYS)}", f" in {rng.choice(CITIES)}"))
    return f"{rng.choice(PROBLEMS[topic])}{since}"


def ticket(rng: Random, split: Split, parent: Parent) -> Row:
    """A ticket about `parent` by some customer."""
    topic, urgent, angry = rng.choice(TOPICS), rng.random() < 0.5, rng.random() < 0.5
    fields: dict[str, Value] = {
        "message": split.draw(lambda: _message(rng, topic, urgent, angry)),
        "customer": person(rng, split),
        "ticketid": rng.randrange(10_000, 100_000),
        "plan": rng.choice(PLANS),
    }
    return parent.join(fields, {"topic": topic, "urgent": urgent, "angry": angry})


def _topic_filter(topic: str) -> Ask:
    return Ask(
        Kind.FILTER,
        f"about-{topic}",
        (
            f"Is the ticket about {topic}? Answer Yes or No.",
            f"Does the message report a {topic} problem? Answer Yes or No.",
        ),
        ("message",),
        lambda row: yes(row.facts["topic"] == topic),
    )


_NAMES = ", ".join(TOPICS[:-1]) + " or " + TOPICS[-1]

TICKETS = Domain(
    "tickets",
    device,
    ticket,
    (
        Ask(
            Kind.FILTER,
            "urgent",
            (
                "Is the ticket urgent? Answer Yes or No.",
                "Is the message urgent? Answer Yes or No.",
                "Does the customer need help at once? Answer Yes or No.",
            ),
            ("message",),
            lambda row: yes(bool(row.facts["urgent"])),
        ),
        Ask(
            Kind.FILTER,
            "angry",
            (
                "Is the customer angry? Answer Yes or No.",
                "Does the message sound angry? Answer Yes or No.",
            ),
            ("message",),
            lambda row: yes(bool(row.facts["angry"])),
        ),
        *(_topic_filter(topic) for topic in TOPICS[:3]),
        Ask(
            Kind.LABEL,
            "topic",
            (
                f"Which topic is the ticket about: {_NAMES}?",
                f"Classify the ticket as {_NAMES}.",
                "What is the topic of the ticket? Answer with one word.",
            ),
            ("message",),
            lambda row: str(row.facts["topic"]),
        ),
        Ask(
            Kind.LABEL,
            "mood",
            (
                "Is the customer ANGRY or POLITE? Answer with one word.",
                "Answer with ONLY 'ANGRY' or 'POLITE'.",
            ),
            ("message",),
            lambda row: "ANGRY" if row.facts["angry"] else "POLITE",
        ),
        *copy_asks(FIELDS),
        Ask(
            Kind.SUMMARY,
            "summary",
            (
                "Summarize the ticket in one sentence.",
                "Summarize the message in one sentence.",
                "In one sentence, what is the ticket about?",
                "Give a short summary of the ticket.",
            ),
            ("message", "product"),
            lambda row: (
                f"The customer has a {row.facts['topic']} problem with the {row.fields['product']}."
            ),
        ),
    ),
)
