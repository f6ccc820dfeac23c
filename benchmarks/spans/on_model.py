"""A part that runs on the model with random weights."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness import Say, Settings
from benchmarks.parts import Part
from benchmarks.spans import sizes
from benchmarks.spans.setup import load_model
from benchmarks.spans.sizes import PROCESSOR, VOCABULARY, Sizes

if TYPE_CHECKING:
    from relquery.model.served import ServedModel
from benchmarks.templates import template

WORDS = template("spans")


@dataclass(slots=True)
class OnModel(Part, ABC):
    """sizes: how much is measured. parameters: of the model, without embeddings."""

    sizes: Sizes = PROCESSOR
    parameters: int = 0

    def load(self, settings: Settings, say: Say) -> ServedModel:
        """The model, and the sizes for this machine."""
        from benchmarks.stock import parameters, set_threads

        set_threads(settings.threads)
        self.sizes = sizes.choose(settings.quick)
        model = load_model(self.sizes.model, self.sizes.queries, settings.data)
        self.parameters = parameters(model)
        say(f"{self.sizes.model}: {self.parameters / 1e6:.1f} M parameters without embeddings")
        return model

    def setting(self) -> str:
        """The section's text about the model."""
        return WORDS.block(
            "setting",
            model=f"`{self.sizes.model}`",
            parameters=self.parameters / 1e6,
            vocabulary=VOCABULARY,
        )
