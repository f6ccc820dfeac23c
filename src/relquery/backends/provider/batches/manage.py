"""How far the batches in a file are, for those who did not submit them just now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from relquery.backends.provider.batches.backend import batch_api
from relquery.backends.provider.batches.store import Job, Store
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.form.trouble import TroubleError
from relquery.backends.provider.server import Server
from relquery.backends.provider.wires.providers import PROVIDERS
from relquery.errors import ConfigError, ModelError


@dataclass(frozen=True, slots=True)
class Shown:
    """One batch. done: requests with a result; None where the provider was not asked.

    not_asked: the server, where its address is needed to ask it. is_cancelled: by this look at it.
    """

    model: str
    remote: str | None
    begun: float
    size: int
    state: str
    done: int | None = None
    not_asked: str | None = None
    is_cancelled: bool = False


def shown_batches(path: Path, base_url: str | None, *, cancel: bool) -> list[Shown]:
    """All batches in a file, the oldest first. cancel: those that run.

    base_url: of the server, for batches of another one than the provider's own. Raises ModelError
    and ConfigError.
    """
    return [asyncio.run(_shown(job, base_url, cancel=cancel)) for job in Store.open(path).all()]


def forget_batch(path: Path, remote: str) -> int:
    """Forget a batch by the provider's id, so that its requests may be submitted again.

    Returns how many they are. Raises ConfigError if the file has no such batch.
    """
    store = Store.open(path)
    found = next((job for job in store.all() if job.remote == remote), None)
    if found is None:
        raise ConfigError(f"{path} has no batch '{remote}'. `relquery batches {path}` lists them.")
    store.forget(found)
    return found.size


async def _shown(job: Job, base_url: str | None, *, cancel: bool) -> Shown:
    name, _, at = job.server.partition("@")
    provider, _, model = name.partition(":")
    if job.state == "ended" or job.remote is None:
        state = "to be found" if job.remote is None else job.state
        return Shown(job.server, job.remote, job.begun, job.size, state)
    if at and base_url is None:
        return Shown(job.server, job.remote, job.begun, job.size, "not asked", not_asked=at)
    config = ProviderConfig(base_url=base_url if at else None)
    api = batch_api(Server(model, config, PROVIDERS[provider]))
    try:
        standing = await api.standing(job.remote)
        is_cancelled = cancel and standing.state == "running"
        if is_cancelled:
            await api.cancel(job.remote)
            standing = await api.standing(job.remote)
    except TroubleError as trouble:
        if trouble.status == 404:
            return Shown(job.server, job.remote, job.begun, job.size, "unknown there")
        said = f"The batch {job.remote} cannot be looked at. {trouble.words}"
        raise ModelError(said) from trouble
    finally:
        await api.close()
    state = "cancelled" if is_cancelled else standing.state
    shown = Shown(job.server, job.remote, job.begun, job.size, state, standing.done)
    return replace(shown, is_cancelled=is_cancelled)
