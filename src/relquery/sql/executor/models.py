"""The models that calls name beside that of the connection, each opened once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relquery.backends.base import Backend
from relquery.config import PromptForm


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """What the calls of a connection may ask, by the names that they write.

    AI_FILTER('Is it late?', message, model := 'small')  =>  asks the backend `small`
    """

    own: tuple[str, ...]
    """Names of the connection's own model; none where it was given a backend."""
    load: Callable[[str], Backend]
    """Opens a model by its name, or raises what is wrong with it."""
    form_of: Callable[[str], PromptForm]
    """The form of prompts to a backend, by its name, where a call sets none."""
    given: Mapping[str, Backend] = field(default_factory=dict)
    """Backends of the user, by the names that calls have for them."""
    opened: dict[str, Backend] = field(default_factory=dict)
    """Those that `load` has opened."""

    def named(self, name: str) -> Backend | None:
        """A model, opened if it is not yet; None for the connection's own."""
        if name in self.own:
            return None
        if name in self.given:
            return self.given[name]
        if name not in self.opened:
            self.opened[name] = self.load(name)
        return self.opened[name]

    def close(self) -> None:
        """Close those that were opened here."""
        while self.opened:
            self.opened.popitem()[1].close()
