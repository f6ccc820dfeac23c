"""What is changed, one at a time, from the form of paper 000 and the order that is the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relquery.config import FORMS, PromptForm

BASE_FORM: PromptForm = "json"
"""As the paper writes rows; the default form is decided by what the others change."""
GUARD = 0.95
"""The least agreement that the guard asks for."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run a query."""

    name: str
    factor: str
    """What differs from the base."""
    opened: Mapping[str, Any] = field(default_factory=dict)
    """Options of `relquery.connect`."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Options of `Connection.sql`."""

    @property
    def has_guard(self) -> bool:
        """Whether answers are compared with those to fields as written."""
        return "guard" in self.asked


BASE = Variant("base", "")
VARIANTS = (
    BASE,
    Variant("original", "order", asked={"order": "original"}),
    Variant("ggr", "order", asked={"order": "ggr"}),
    Variant("guard", "guard", asked={"guard": GUARD}),
    *(Variant(form, "form", asked={"form": form}) for form in FORMS if form != BASE_FORM),
    Variant("bfloat16", "numbers", {"dtype": "bfloat16"}),
    Variant("int8", "numbers", {"quantize": "int8"}),
    Variant("int4", "numbers", {"quantize": "int4"}),
)
"""Those that open a model in the same way stand together."""
OF_ORDER = ("order", "guard")
"""Factors that change nothing where a call has one field."""
