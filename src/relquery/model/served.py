"""The interface of models that the engine on this machine serves: a network that is loaded, or a
simulated one.

Implemented by NativeModel, TorchModel and SimulatedModel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from relquery.config import EngineConfig
from relquery.engine.executor import Executor
from relquery.engine.requests.pieces import Adapter
from relquery.engine.step.shelf import States
from relquery.model.footprint import Footprint
from relquery.model.text.tokenizer import Tokenizer


class ServedExecutor(Executor, Protocol):
    """An executor that holds the states of a KV cache."""

    @property
    def slot_bytes(self) -> int | None:
        """Bytes of one token in the cache; None if nothing is stored there. One step must have been
        executed."""

    def store(self, memory: int, folder: Path | None, disk: int) -> States:
        """A store of states of the cache, of so many bytes in host memory and in a folder."""

    def reserve(self) -> None:
        """Allocate memory for the whole cache now. One step must have been executed."""

    def close(self) -> None:
        """Give back the memory of the cache."""


class ServedModel(Protocol):
    """A model with its tokenizer, and how to make an executor for it."""

    @property
    def name(self) -> str:
        """As the user wrote it."""

    @property
    def version(self) -> str:
        """Changes with whatever determines the answers, as far as it is quick to see."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    @property
    def context(self) -> int:
        """Positions that it has, in tokens."""

    @property
    def end(self) -> frozenset[int]:
        """Token ids that end an answer."""

    @property
    def vocabulary(self) -> int:
        """Token ids that it reads are below it."""

    @property
    def dtype(self) -> object:
        """Of its states."""

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, for people, and why if it is not relquery's own."""

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """What it can be changed by, by name."""

    @property
    def is_relocatable(self) -> bool:
        """Whether its keys can be used at other positions than those they were computed at."""

    @property
    def is_simulated(self) -> bool:
        """Whether nothing is computed, so that there is nothing to measure."""

    @property
    def length(self) -> int | None:
        """Tokens after which any answer without labels or a schema ends; None if the model says."""

    def fingerprint(self) -> str:
        """A digest of all that determines its answers."""

    def executor(
        self, config: EngineConfig, slots: int, since: Callable[[], float]
    ) -> ServedExecutor:
        """A new executor. slots: of the cache. since: when the oldest open request arrived."""

    def named(self, name: str) -> ServedModel:
        """The same under another name."""

    def footprint(self) -> Footprint:
        """How much memory it takes. Raises ConfigError for a simulated model, which takes none."""

    def close(self) -> None:
        """Give back the memory of the weights."""
