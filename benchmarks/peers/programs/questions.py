"""What every side asks. {column} stands for a field, as LOTUS and relquery write it."""

from __future__ import annotations

MAP = "Write one short sentence that says what the critic thinks in {reviewcontent}."
DUPLICATES = "Write one short sentence that says what happens in {movieinfo}."
FILTER = "Does the critic recommend {movietitle} in {reviewcontent}?"
CLASSIFY = "What is the mood of {reviewcontent}?"
GROUPS = "Summarize what the critics praise in {reviewcontent}."
LABELS = ("glad", "sad", "torn")
FIELDS = {"mood": "one of glad, sad, torn", "stars": "how many of five stars the critic gives"}
"""Those of the values to extract from a review, and what they mean."""


def plain(question: str) -> str:
    """The question for a system that puts no names of columns into it."""
    return question.replace("{", "").replace("}", "")
