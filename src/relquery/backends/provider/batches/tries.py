"""Calls of a batch API that are made again where that costs nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from relquery.backends.provider.batches.api import BatchApi, Result
from relquery.backends.provider.batches.store import Job
from relquery.backends.provider.form.trouble import TroubleError
from relquery.backends.provider.sending.headers import retry_after, utc
from relquery.backends.provider.sending.retries import TOO_LONG, backoff

Sleep = Callable[[float], Awaitable[None]]

_PAUSES = (1.0, 2.0, 5.0)
"""Seconds after which results that lack answers are loaded again."""


async def submitted(
    api: BatchApi, job: Job, prepared: Any, most: int, sleep: Sleep, chance: Random
) -> str:
    """Submit a batch; gives the provider's id of it. Raises TroubleError.

    A limit of requests is waited for: what it refuses was not taken. most: tries after the first.
    """
    tries = 0
    while True:
        try:
            return await api.submit(job, prepared)
        except TroubleError as trouble:
            tries += 1
            told = retry_after(trouble.headers, utc())
            if not trouble.is_limit or tries > most or (told or 0.0) > TOO_LONG:
                raise
            await sleep(backoff(tries, told, chance))


async def loaded(
    api: BatchApi, remote: str, answered: int, sleep: Sleep
) -> tuple[list[Result], bool]:
    """The results of a batch that has ended, and whether all answers are among them.

    answered: how many the provider counts. Raises TroubleError.
    """
    results = await api.results(remote)
    for pause in _PAUSES:
        if _have(results, answered):
            break
        await sleep(pause)  # the download was cut or garbled
        results = await api.results(remote)
    return results, _have(results, answered)


def _have(results: list[Result], answered: int) -> bool:
    return len({each.custom for each in results if each.text is not None}) >= answered
