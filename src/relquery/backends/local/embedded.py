"""The engine on this machine as a backend, whose steps are run by who waits for its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relquery.backends.local.client import EngineClient
from relquery.backends.local.core import LoadedEngine
from relquery.backends.local.host import CLOSED
from relquery.backends.local.questions import QUESTIONS, facts_of
from relquery.errors import ConfigError

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


class EmbeddedBackend(LoadedEngine, EngineClient):
    """Answers prompts on this machine, in the thread of who asks: an EngineHost and its own client.

    more: see LoadedEngine. Not thread-safe.
    """

    def __init__(self, model: ServedModel, *given: Any, **more: Any) -> None:
        LoadedEngine.__init__(self, model, *given, **more)
        EngineClient.__init__(self, self, facts_of(self))

    def ask(self, question: str, *given: Any) -> Any:
        if self.closed:
            raise ConfigError(CLOSED)
        return QUESTIONS[question](self, *given)
