"""Embedders by name, with the options that each takes; an encoder on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relquery.arrays import Float32s
from relquery.errors import ConfigError, unknown
from relquery.retrieval.embedder import Embedder

if TYPE_CHECKING:
    from relquery.model.encoder import Encoder

WORDS, AUTO = "tfidf", "auto"
_OF_ENCODERS = ("pooling", "device")


def load_embedder(name: str, **options: Any) -> Embedder | None:
    """Open an embedder.

    name: "auto" for what `default_embedder` says; "tfidf" for search by words, which is None;
        "openai:NAME" for an endpoint of the OpenAI
        form, such as "openai:text-embedding-3-small"; else a folder or the Hugging Face name of
        an encoder.
    options: of an encoder `pooling`, "mean" or "cls" (default: what its folder says, else mean),
        and `device`; of an endpoint `dimensions` `base_url`, `api_key`, `max_concurrency`,
        `timeout` and `max_retries` (see ProviderConfig).

    Raises ConfigError, ModelError and MissingExtraError.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"embedder is {name!r}. Give 'auto', 'tfidf', a folder or Hugging Face name of an "
            "encoder, 'openai:NAME', or an object of a class that inherits from rq.Embedder."
        )
    if name == AUTO:
        _check(options, (), "'auto'")
        name = default_embedder()
    if name == WORDS:
        _check(options, (), "'tfidf'")
        return None
    provider, colon, model = name.partition(":")
    if colon and provider == "openai":
        if not model:
            raise ConfigError(
                "The embedder's name is empty. Write openai:NAME, e.g. "
                "openai:text-embedding-3-small."
            )
        return _endpoint(model, options)
    if name.startswith("text-embedding-") and not Path(name).exists():
        raise ConfigError(f"'{name}' is an embedder of OpenAI. Write 'openai:{name}'.")
    _check(options, _OF_ENCODERS, "an encoder")

    return LocalEmbedder(name, **options)


def embedder_of(embedder: str | Embedder | None) -> Embedder | None:
    """An embedder as it is, or the one that a name means. Raises what `load_embedder` raises."""
    is_there = embedder is None or isinstance(embedder, Embedder)
    return embedder if is_there else load_embedder(embedder)  # type: ignore[arg-type,return-value]


def default_embedder() -> str:
    """What "auto" means here: the first encoder of the catalogue that is in the hub's cache and
    needs no words before a text, or "tfidf". Looks at the disk alone."""
    from relquery.model.catalogue import ENCODERS
    from relquery.model.hub import whole_in_cache

    usable = (each.name for each in ENCODERS if not each.needs_prefix)
    return next((name for name in usable if whole_in_cache(name) is not None), WORDS)


def hint_for(embedder: object) -> str:
    """What to say when texts are compared by spelling because nothing else is here; else ""."""
    if embedder != AUTO:
        return ""
    from relquery.model.catalogue import ENCODERS

    return (
        "Texts are compared by words and spelling, as no encoder is installed. To compare what "
        f"they mean: relquery models fetch {ENCODERS[0].name}. To keep it so, and without this "
        "line: embedder='tfidf'."
    )


_OF_PROVIDER = ("base_url", "api_key", "max_concurrency", "timeout", "max_retries")
"""Fields of ProviderConfig that an endpoint heeds."""


def _endpoint(model: str, options: dict[str, Any]) -> Embedder:
    from relquery.backends.provider.config import ProviderConfig
    from relquery.backends.provider.embeddings import Endpoint

    known = ["dimensions", *_OF_PROVIDER]
    _check(options, known, "an 'openai:' embedder")
    dimensions = options.pop("dimensions", None)
    return Endpoint(model, ProviderConfig(**options), dimensions)


def _check(options: dict[str, Any], known: Any, what: str) -> None:
    for option in options:
        if option not in known:
            raise ConfigError(unknown("option", option, list(known), of=what))


class LocalEmbedder(Embedder):
    """A folder or Hugging Face name of an encoder. See Encoder.load."""

    def __init__(self, spec: str, pooling: str | None = None, device: str | None = None) -> None:
        self.spec, self._pooling, self._device = spec, pooling, device

    @cached_property
    def name(self) -> str:
        return f"encoder {self._encoder.fingerprint()}"

    @property
    def label(self) -> str:
        return self.spec

    def embed(self, texts: Sequence[str]) -> Float32s:
        return self._encoder.embed(texts)

    def count(self, texts: Sequence[str]) -> list[tuple[int, bool]]:
        """The tokens that are read of each text, and whether more of it is cut off."""
        return self._encoder.count(texts)

    @cached_property
    def _encoder(self) -> Encoder:
        from relquery.model.encoder import Encoder

        return Encoder.load(self.spec, self._pooling, self._device)
