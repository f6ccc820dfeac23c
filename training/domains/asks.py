"""Questions that several domains ask: on sentiment, and for a field's value."""

from __future__ import annotations

from training.domains.rows import Ask, Kind, Row, yes

COPY_WORDINGS = (
    "Repeat the value of {}.",
    "What is the {}?",
    "Copy the {}.",
    "Give the {} only.",
    "Return the {} field exactly.",
    "State the value of the field {}.",
)


def rating(row: Row) -> int:
    """The rating, 1 to 5, that the review's words express."""
    return int(row.facts["rating"])


def feeling(row: Row) -> str:
    """The verb of a summary."""
    return "liked" if rating(row) > 3 else "disliked" if rating(row) < 3 else "was unsure about"


def three_way(row: Row) -> str:
    """Positive, Neutral or Negative."""
    return "Positive" if rating(row) > 3 else "Negative" if rating(row) < 3 else "Neutral"


def sentiment_asks(field: str, author: str, item: str) -> tuple[Ask, ...]:
    """Filters and labels on the sentiment of the review in `field`."""
    needs = (field,)
    return (
        Ask(
            Kind.FILTER,
            "positive",
            (
                "Is the review positive? Answer Yes or No.",
                "Is the review positive?",
                "Is this a positive review? Answer Yes or No.",
                "Answer Yes if the review is positive, otherwise No.",
                f"Did the {author} like the {item}? Answer Yes or No.",
                f"Does the {author} recommend the {item}? Answer Yes or No.",
            ),
            needs,
            lambda row: yes(rating(row) > 3),
        ),
        Ask(
            Kind.FILTER,
            "negative",
            (
                "Is the review negative? Answer Yes or No.",
                "Is this a negative review? Answer Yes or No.",
                f"Did the {author} dislike the {item}? Answer Yes or No.",
            ),
            needs,
            lambda row: yes(rating(row) < 3),
        ),
        Ask(
            Kind.LABEL,
            "positive-negative",
            (
                "Answer with ONLY 'POSITIVE' or 'NEGATIVE'.",
                "Is the review POSITIVE or NEGATIVE? Answer with one word.",
                "Classify the sentiment of the review as POSITIVE or NEGATIVE.",
            ),
            needs,
            lambda row: "POSITIVE" if rating(row) > 3 else "NEGATIVE",
        ),
        Ask(
            Kind.LABEL,
            "three-way",
            (
                "Classify the review as Positive, Neutral or Negative.",
                "What is the sentiment: Positive, Neutral or Negative?",
                "Label the sentiment of the review: Positive, Neutral or Negative.",
            ),
            needs,
            three_way,
        ),
        Ask(
            Kind.LABEL,
            "rating",
            (
                "Rate sentiment from 1 to 5.",
                "Rate the sentiment of the review from 1 to 5.",
                "Give the review a score from 1 to 5. Answer with the number only.",
                "On a scale from 1 to 5, how positive is the review?",
            ),
            needs,
            lambda row: str(rating(row)),
        ),
    )


def copy_asks(fields: tuple[str, ...]) -> tuple[Ask, ...]:
    """One question per field, asking for its value."""
    return tuple(_copy(field) for field in fields)


def _copy(field: str) -> Ask:
    return Ask(
        Kind.COPY,
        field,
        tuple(wording.format(field) for wording in COPY_WORDINGS),
        (field,),
        lambda row: str(row.fields[field]),
    )
