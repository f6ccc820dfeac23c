"""Suggests labels for a call whose answers are only compared with certain texts.

WHERE LLM('Positive?', review) = 'Yes'  =>  ('Yes', 'No')
"""

from __future__ import annotations

_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}


def hint(labels: tuple[str, ...]) -> str:
    """What to add to a call to restrict its answers to certain texts."""
    shown = [*labels]
    if len(labels) == 1:
        shown.append(_opposite(labels[0]) or "...")
    listing = ", ".join(
        text if text == "..." and text not in labels else _quoted(text) for text in shown
    )
    return f"add labels := [{listing}]"


def _opposite(label: str) -> str | None:
    other = _OPPOSITES.get(label.lower())
    if other is None:
        return None
    if label.isupper():
        return other.upper()
    return other.capitalize() if label[0].isupper() else other


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
