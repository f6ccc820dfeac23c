"""A store of earlier answers under keys made from the questions."""

from __future__ import annotations

from relquery.ledger.keys import Keys, answer_keys, has_one_answer
from relquery.ledger.saving import save_copies, saving
from relquery.ledger.store import Ledger
from relquery.ledger.stored import AnswerStore, StoredCall, is_known, look_up
from relquery.ledger.turns import Turn, turns

__all__ = [
    "AnswerStore",
    "Keys",
    "Ledger",
    "StoredCall",
    "Turn",
    "answer_keys",
    "has_one_answer",
    "is_known",
    "look_up",
    "save_copies",
    "saving",
    "turns",
]
