"""Stores earlier answers under a key made from the question."""

from __future__ import annotations

from relquery.ledger.keys import Keys, answer_keys, has_one_answer
from relquery.ledger.saving import save_copies, saving
from relquery.ledger.store import Ledger
from relquery.ledger.stored import AnswerStore, Call, is_known, look_up
from relquery.ledger.turns import Turn, turns

__all__ = [
    "AnswerStore",
    "Call",
    "Keys",
    "Ledger",
    "Turn",
    "answer_keys",
    "has_one_answer",
    "is_known",
    "look_up",
    "save_copies",
    "saving",
    "turns",
]
