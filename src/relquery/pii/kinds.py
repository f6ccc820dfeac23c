"""The kinds of personal data, as placeholders name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relquery.errors import ConfigError, unknown

BY_FORM = (
    "EMAIL",
    "PHONE_NUMBER",
    "DATE_OF_BIRTH",
    "PAYMENT_CARD_DATA",
    "BANK_ACCOUNT",
    "IP_ADDRESS",
    "NATIONAL_ID",
    "PASSPORT",
    "DRIVERS_LICENSE",
    "TAX_IDENTIFIER",
)
"""Those with a form: rules find them in nearly all texts."""
KINDS = ("NAME", "ADDRESS", *BY_FORM)
"""Those that rules look for."""
OF_MODELS = (*KINDS, "AGE", "GENDER")
"""Those that a model is asked for."""


def kinds_of(value: object, known: Sequence[str] = KINDS) -> tuple[str, ...]:
    """The kinds that `redact` means: all for True, none for False, or a list of names.

    Raises ConfigError.
    """
    if isinstance(value, bool):
        return tuple(known) if value else ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"redact is {value!r}; expected true, false, or a list such as ['NAME'].")
    names = [str(name).upper() for name in value]
    for name in names:
        if name not in known:
            raise ConfigError(unknown("kind of personal data", name, known))
    return tuple(kind for kind in known if kind in names)
