"""Words that the rules for names know: common names, and capitalised words that are no names.

They stand in words.toml, of our own making, for English, German and French.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_WORDS = {name: frozenset(text.split()) for name, text in _LISTS.items()}

GIVEN = _WORDS["given"]
"""Common given names."""
SURNAMES = _WORDS["surnames"]
"""Common surnames."""
ALSO_WORDS = _WORDS["also_words"]
"""Given names that are often something else: alone they are no names."""
SMALL_WORDS = _WORDS["small_words"]
"""Those that are often something else in small letters."""
NO_NAMES = _WORDS["no_names"]
"""Words that are no names, also where they are capitalised; in lower case."""
OF_OTHERS = _WORDS["of_others"]
"""Words in the names of organisations, places and products; in lower case."""
