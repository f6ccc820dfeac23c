"""The scheduler that plans while a step runs; the stand-in has no steps that take time."""

from __future__ import annotations

from vllm.v1.core.sched.scheduler import Scheduler

AsyncScheduler = type("AsyncScheduler", (Scheduler,), {})
