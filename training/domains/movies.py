"""The `movies` domain: reviews joined with the movie they are about."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from training.domains.asks import copy_asks, feeling, sentiment_asks
from training.domains.rows import Ask, Domain, Kind, Parent, Row, Value, yes
from training.domains.sentiment import draw_rating, review
from training.domains.split import Split
from training.domains.words import CITIES, WEEKDAYS, movie_title, outlet, person, pool

# For each genre: who the story is about, and what happens.
STORIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Comedy": (
        ("a clumsy waiter", "two rival bakers", "a nervous groom", "a retired clown"),
        (
            "mixes up two weddings",
            "has to pretend to be a duke",
            "enters a cooking contest by mistake",
            "loses a bet and must dance on stage",
        ),
    ),
    "Horror": (
        ("a night nurse", "four campers", "a grave keeper", "a family in a cursed house"),
        (
            "hears voices behind the walls",
            "wakes something that was buried",
            "is hunted by a creature with no face",
            "finds a doll that moves at night",
        ),
    ),
    "Western": (
        ("a lone sheriff", "a bounty hunter", "two cattle drivers", "a ranch owner"),
        (
            "rides out to stop a gang of bandits",
            "defends a dusty town",
            "crosses the prairie with stolen gold",
            "must face an old enemy in a duel at noon",
        ),
    ),
    "Romance": (
        ("a shy florist", "a young pianist", "two old friends", "a lonely baker"),
        (
            "falls in love with a stranger",
            "gets a love letter meant for another",
            "meets a first love again",
            "must choose between love and home",
        ),
    ),
    "Crime": (
        ("a tired detective", "a corrupt lawyer", "a bank clerk", "a former spy"),
        (
            "follows the trail of a killer",
            "plans one final robbery",
            "finds proof of a murder",
            "must find out who betrayed the mob",
        ),
    ),
    "Science Fiction": (
        ("a robot engineer", "a crew of astronauts", "a young cyborg", "a space miner"),
        (
            "lands on an unknown planet",
            "receives a signal from another galaxy",
            "travels through time to stop a machine",
            "discovers that the colony is a simulation",
        ),
    ),
}
GENRES = tuple(STORIES)
FOR_KIDS = (
    "Gentle jokes make it safe for young children.",
    "There is nothing in it that would scare a child.",
    "Made for the whole family.",
    "Suitable for all ages.",
    "A film that parents can watch with small children.",
)
NOT_FOR_KIDS = (
    "Contains graphic violence and harsh language.",
    "Only for adults.",
    "Several bloody scenes are shown in full.",
    "Rated for viewers over eighteen.",
    "Shows drug use and cruel fights.",
)
SETTINGS = (
    "The story is set in {}",
    "It was filmed in {}",
    "Most of it takes place in {}",
    "It begins in {}",
)
SEASONS = ("in a hot summer", "in a cold winter", "during a long strike", "shortly after the war")
ASPECTS = pool("plot acting script music ending dialogue camera cast story pace")
FIELDS = (
    "reviewcontent",
    "critic",
    "outlet",
    "movietitle",
    "movieinfo",
    "genre",
    "director",
    "year",
)


def _info(rng: Random, genre: str, kids: bool, stories: int) -> str:
    heroes, events = STORIES[genre]
    sentences = []
    for _ in range(stories):
        hero = rng.choice(heroes)
        sentences += [
            f"{hero[0].upper()}{hero[1:]} {rng.choice(events)}.",
            f"{rng.choice(SETTINGS).format(rng.choice(CITIES))} {rng.choice(SEASONS)}.",
        ]
    return " ".join([*sentences, rng.choice(FOR_KIDS if kids else NOT_FOR_KIDS)])


def movie(rng: Random, split: Split, stories: int = 1) -> Parent:
    """A movie: title, description, genre, director, year. stories: that its description tells."""
    genre, kids = rng.choice(GENRES), rng.random() < 0.5
    fields: dict[str, Value] = {
        "movietitle": movie_title(rng, split),
        "movieinfo": split.draw(lambda: _info(rng, genre, kids, stories)),
        "genre": genre,
        "director": person(rng, split),
        "year": rng.randrange(1950, 2025),
    }
    return Parent(fields, {"kids": kids, "genre": genre, "quality": rng.randint(1, 5)})


def _filler(rng: Random) -> str:
    return rng.choice(
        (
            f"I saw it in {rng.choice(CITIES)} on a {rng.choice(WEEKDAYS)}",
            f"it runs for about {rng.choice(('ninety', 'eighty', 'a hundred'))} minutes",
            f"the cinema in {rng.choice(CITIES)} was half full",
            f"I watched it with {rng.choice(('a friend', 'my brother', 'my class'))}",
        )
    )


def review_of(rng: Random, split: Split, parent: Parent, short: bool = False) -> Row:
    """A review of `parent` by some critic; of one sentence if it is short."""
    rating = draw_rating(rng, int(parent.facts["quality"]))
    fields: dict[str, Value] = {
        "reviewcontent": review(rng, split, rating, ASPECTS, lambda: _filler(rng), short),
        "critic": person(rng, split),
        "outlet": outlet(rng),
    }
    return parent.join(fields, {"rating": rating})


def _genre_asks() -> tuple[Ask, ...]:
    names = ", ".join(GENRES[:-1]) + " or " + GENRES[-1]
    return (
        Ask(
            Kind.LABEL,
            "genre",
            (
                f"Which genre is the movie: {names}?",
                f"Classify the movie as {names}.",
                "What is the genre of the movie? Answer with the genre only.",
            ),
            ("movieinfo",),
            lambda row: str(row.facts["genre"]),
        ),
    )


MOVIES = Domain(
    "movies",
    movie,
    review_of,
    (
        *sentiment_asks("reviewcontent", "critic", "movie"),
        *_genre_asks(),
        Ask(
            Kind.FILTER,
            "kids",
            (
                "Is the movie suitable for kids? Answer Yes or No.",
                "Is the movie suitable for children? Answer Yes or No.",
                "Can small children watch this movie? Answer Yes or No.",
                "Is this a movie for the whole family? Answer Yes or No.",
            ),
            ("movieinfo",),
            lambda row: yes(bool(row.facts["kids"])),
        ),
        *copy_asks(FIELDS),
        Ask(
            Kind.SUMMARY,
            "summary",
            (
                "Summarize the review in one sentence.",
                "Summarize the review of the movie in one sentence.",
                "In one sentence, what did the critic think of the movie?",
                "Give a short summary of the review.",
            ),
            ("reviewcontent", "movietitle"),
            lambda row: f"The critic {feeling(row)} {row.fields['movietitle']}.",
        ),
    ),
)

FILMS = replace(
    MOVIES,
    name="films",
    parent=partial(movie, stories=7),
    child=partial(review_of, short=True),
)
"""The same with long descriptions and short reviews, as in real joins."""
