"""LOTUS's caches: where an LM keeps its answers. relquery keeps them in a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_FILE = "relquery.db"


class CacheType(Enum):
    """A place where answers are kept."""

    IN_MEMORY = "in_memory"
    SQLITE = "sqlite"


@dataclass(frozen=True)
class CacheConfig:
    """Settings of a cache."""

    cache_type: CacheType = CacheType.IN_MEMORY
    max_size: int = 1024
    """Has no effect: no answer is dropped."""
    cache_dir: str = "~/.lotus/cache"


@dataclass(frozen=True)
class Cache:
    """A place where answers are kept."""

    path: Path | None = None
    """A file; None for memory."""

    @property
    def ledger(self) -> str:
        """As `rq.connect` takes it."""
        if self.path is None:
            return ":memory:"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return str(self.path)

    def reset(self, max_size: int | None = None) -> None:
        """Forget all answers, unless an LM that uses them is open."""
        del max_size
        for path in self.path.parent.glob(f"{_FILE}*") if self.path is not None else ():
            path.unlink()


class CacheFactory:
    """A maker of caches."""

    @staticmethod
    def create_cache(config: CacheConfig) -> Cache:
        """A cache in memory or in a file."""
        folder = Path(config.cache_dir).expanduser()
        return Cache(folder / _FILE if config.cache_type is CacheType.SQLITE else None)

    @staticmethod
    def create_default_cache(max_size: int = 1024) -> Cache:
        """A cache in memory."""
        del max_size
        return Cache()
