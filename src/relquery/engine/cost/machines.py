"""What a machine's steps cost, and its limits, by name or from a file of `relquery calibrate`."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from relquery.config import EngineConfig
from relquery.engine.cost.accelerators import SERVED, Served
from relquery.engine.cost.fit import Fit
from relquery.engine.cost.job_time import JobTime, JobTimeFit
from relquery.engine.cost.linear import LinearCost
from relquery.errors import ConfigError, unknown

_LIMITS = ("max_num_batched_tokens", "max_num_seqs", "block_size", "cache_tokens")


def find_machine(given: str) -> Served:
    """One of SERVED by its name, or from a file. Raises ConfigError."""
    if given in SERVED:
        return SERVED[given]
    path = Path(given)
    if path.suffix != ".json":
        raise ConfigError(
            unknown("cost model", given, SERVED, more=", or a .json file of `relquery calibrate`")
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cost = {field.name: float(content["cost"][field.name]) for field in fields(LinearCost)}
        limits = {name: content["limits"][name] for name in _LIMITS}
        job_time = _job_time(content.get("job_time"))
    except OSError as error:
        raise ConfigError(f"The cost model {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a cost model: {type(error).__name__}: {error}. Write one with "
            "`relquery calibrate MODEL --output FILE.json`."
        ) from error
    if not all(0 <= each < inf for each in (*cost.values(), *_slopes(job_time))):
        raise ConfigError(f"{path} has costs that are negative or not finite. Measure again.")
    return Served(LinearCost(**cost), EngineConfig(**limits), job_time, content.get("model"))


def write_machine(
    path: Path, model: str, fit: Fit, limits: EngineConfig, jct: JobTimeFit | None = None
) -> None:
    """Write a fitted cost model with the limits it is valid for, and the JCT if one was fitted."""
    content: dict[str, Any] = {
        "model": model,
        "cost": asdict(fit.cost),
        "r2": fit.r2,
        "held_out_r2": fit.held_out,
        "steps": fit.steps,
        "limits": {name: getattr(limits, name) for name in _LIMITS},
    }
    if jct is not None:
        content["job_time"] = asdict(jct.job_time)
        content["job_time_pearson"] = {"fitted": jct.fitted, "uncached_tokens": jct.proxy}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def with_cache(served: Served, cache_tokens: int | None) -> Served:
    """The same machine with another KV cache; None leaves it as it is."""
    if cache_tokens is None:
        return served
    return replace(served, limits=replace(served.limits, cache_tokens=cache_tokens))


def with_speed(served: Served, speed: float) -> Served:
    """The same machine, with everything `speed` times as fast."""
    job_time = served.job_time
    return replace(
        served,
        cost=LinearCost(*(seconds / speed for seconds in astuple(served.cost))),
        job_time=job_time and JobTime(*(seconds / speed for seconds in astuple(job_time))),
    )


def _job_time(content: Any) -> JobTime | None:
    if content is None:
        return None
    return JobTime(**{field.name: float(content[field.name]) for field in fields(JobTime)})


def _slopes(job_time: JobTime | None) -> tuple[float, ...]:
    if job_time is None:
        return ()
    return job_time.per_token, job_time.per_cached, job_time.attention
