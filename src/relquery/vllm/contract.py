"""Everything of vLLM that the plug-in uses, so that what has moved is named when it starts.

vLLM calls none of this public. It is that of VERSIONS; `scripts/test-vllm` looks for it in their
wheels, and tries the first of them for real.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

from relquery.errors import RelqueryError

VERSIONS = ("0.32", "0.33")
"""The versions of vLLM that the plug-in is written for."""

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "vllm.LLM": ("model", "kwargs"),
    "vllm.LLM.get_tokenizer": (),
    "vllm.SamplingParams": (
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "max_tokens",
        "detokenize",
        "output_kind",
        "structured_outputs",
        "allowed_token_ids",
        "logprob_token_ids",
    ),
    "vllm.exceptions.VLLMValidationError": ("message",),
    "vllm.sampling_params.StructuredOutputsParams": ("json",),
    "vllm.v1.engine.llm_engine.LLMEngine.add_request": ("request_id", "prompt", "params"),
    "vllm.v1.engine.llm_engine.LLMEngine.abort_request": ("request_ids",),
    "vllm.v1.engine.llm_engine.LLMEngine.step": (),
    "vllm.logger.init_logger": ("name",),
    "vllm.v1.engine.EngineCoreOutput": ("request_id", "new_token_ids", "finish_reason"),
    "vllm.v1.engine.EngineCoreOutputs": ("outputs",),
    "vllm.v1.core.sched.request_queue.RequestQueue.add_request": ("request",),
    "vllm.v1.core.sched.request_queue.RequestQueue.pop_request": (),
    "vllm.v1.core.sched.request_queue.RequestQueue.peek_request": (),
    "vllm.v1.core.sched.request_queue.RequestQueue.prepend_request": ("request",),
    "vllm.v1.core.sched.request_queue.RequestQueue.prepend_requests": ("requests",),
    "vllm.v1.core.sched.request_queue.RequestQueue.remove_request": ("request",),
    "vllm.v1.core.sched.request_queue.RequestQueue.remove_requests": ("requests",),
    "vllm.v1.core.sched.async_scheduler.AsyncScheduler.schedule": ("throttle_prefills",),
    "vllm.v1.core.sched.scheduler.Scheduler.schedule": ("throttle_prefills",),
    "vllm.v1.core.sched.scheduler.Scheduler.add_request": ("request",),
    "vllm.v1.core.sched.scheduler.Scheduler.update_from_output": (
        "scheduler_output",
        "model_runner_output",
    ),
    "vllm.v1.core.sched.scheduler.Scheduler.finish_requests": ("request_ids", "finished_status"),
    "vllm.v1.core.sched.scheduler.Scheduler._free_request": ("request",),
    "vllm.v1.core.sched.scheduler.Scheduler._preempt_request": ("request", "timestamp"),
    "vllm.v1.core.sched.scheduler.Scheduler._handle_blocked_waiting_request": ("request",),
    "vllm.v1.core.block_pool.BlockPool.get_num_free_blocks": (),
    "vllm.v1.core.block_pool.BlockPool.get_cached_block": ("block_hash", "kv_cache_group_ids"),
    "vllm.v1.core.block_pool.BlockHashToBlockMap.insert": ("key", "block"),
    "vllm.v1.core.block_pool.BlockHashToBlockMap.pop": ("key", "block_id"),
    "vllm.v1.core.block_pool.BlockHashToBlockMap.get_one_block": ("key",),
    "vllm.v1.core.kv_cache_utils.get_block_hash": ("key",),
}
"""Functions and methods, with the parameters that are given to them or that they are given."""

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.base"
OF_SPANS: dict[str, tuple[str, ...]] = {
    "vllm.distributed.kv_transfer.kv_connector.factory.KVConnectorFactory.register_connector": (
        "name",
        "module_path",
        "class_name",
    ),
    f"{_CONNECTOR}.KVConnectorMetadata": (),
    f"{_CONNECTOR}.KVConnectorBase_V1": ("vllm_config", "role", "kv_cache_config"),
    f"{_CONNECTOR}.KVConnectorBase_V1.bind_gpu_block_pool": ("gpu_block_pool",),
    f"{_CONNECTOR}.KVConnectorBase_V1.on_new_request": ("request",),
    f"{_CONNECTOR}.KVConnectorBase_V1.get_num_new_matched_tokens": (
        "request",
        "num_computed_tokens",
    ),
    f"{_CONNECTOR}.KVConnectorBase_V1.update_state_after_alloc": (
        "request",
        "blocks",
        "num_external_tokens",
    ),
    f"{_CONNECTOR}.KVConnectorBase_V1.build_connector_meta": ("scheduler_output",),
    f"{_CONNECTOR}.KVConnectorBase_V1.request_finished": ("request", "block_ids"),
    f"{_CONNECTOR}.KVConnectorBase_V1.register_kv_caches": ("kv_caches",),
    f"{_CONNECTOR}.KVConnectorBase_V1.start_load_kv": ("forward_context",),
    f"{_CONNECTOR}.KVConnectorBase_V1.get_block_ids_with_load_errors": (),
    f"{_CONNECTOR}.KVConnectorBase_V1._get_connector_metadata": (),
    "vllm.v1.core.block_pool.BlockPool.touch": ("blocks",),
    "vllm.v1.core.block_pool.BlockPool.reset_prefix_cache": (),
    "vllm.v1.core.block_pool.BlockPool.free_blocks": ("ordered_blocks",),
    "vllm.v1.core.kv_cache_manager.KVCacheBlocks.get_block_ids": (),
    "vllm.v1.request.Request.update_block_hashes": (),
}
"""The same, of what the connector for spans uses in the scheduler and the workers."""
OF_WORKER: tuple[str, ...] = (
    f"{_ROTARY}._ROPE_DICT",
    f"{_ROTARY}.RotaryEmbedding._compute_cos_sin_cache",
)
"""The same, of what it uses in the workers alone."""

NAMES: tuple[str, ...] = (
    "vllm.sampling_params.RequestOutputKind.FINAL_ONLY",
    "vllm.v1.request.RequestStatus.WAITING",
    "vllm.v1.request.RequestStatus.PREEMPTED",
    "vllm.v1.request.RequestStatus.FINISHED_ABORTED",
    "vllm.v1.engine.FinishReason.ABORT",
    "vllm.v1.core.sched.interface.PauseState.UNPAUSED",
    "vllm.v1.core.sched.request_queue.SchedulingPolicy.FCFS",
)
"""Values."""

NAMES_OF_SPANS: tuple[str, ...] = (
    f"{_CONNECTOR}.KVConnectorRole.SCHEDULER",
    "vllm.v1.request.RequestStatus.FINISHED_STOPPED",
    "vllm.v1.request.RequestStatus.FINISHED_LENGTH_CAPPED",
)
"""The same, of what the connector for spans uses."""

OF_SCHEDULER: tuple[str, ...] = (
    "vllm_config.additional_config",
    "kv_cache_config.num_blocks",
    "kv_cache_manager.enable_caching",
    "kv_cache_manager.block_pool.num_gpu_blocks",
    "kv_cache_manager.block_pool.blocks",
    "kv_cache_manager.block_pool.cached_block_hash_to_block",
    "kv_cache_manager.coordinator.single_type_managers",
    "max_num_scheduled_tokens",
    "max_num_running_reqs",
    "max_num_active_reqs",
    "hash_block_size",
    "block_size",
    "pause_state",
    "policy",
    "requests",
    "running",
    "waiting",
)
"""Attributes of a scheduler."""

OF_MANAGER = ("req_to_blocks", "kv_cache_group_id")
OF_BLOCK = ("block_id", "ref_cnt")
OF_REQUEST: tuple[str, ...] = (
    "request_id",
    "prompt_token_ids",
    "num_prompt_tokens",
    "max_tokens",
    "sampling_params",
    "cache_salt",
    "client_index",
    "block_hashes",
    "_output_token_ids",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_in_flight_tokens",
    "num_output_tokens",
    "status",
)
"""Attributes of a request."""


class MovedError(RelqueryError):
    """This vLLM is not the one that the plug-in was written for. moved: what it lacks."""

    def __init__(self, moved: list[str]) -> None:
        self.moved = moved
        super().__init__(
            f"relquery's plug-in is written for vLLM {' and '.join(VERSIONS)}; this one lacks "
            f"{', '.join(moved)}. Install vllm=={VERSIONS[-1]}.*, or start it without the plug-in."
        )


def check_code() -> None:
    """Raises MovedError if functions or names are not where they were."""
    _check(FUNCTIONS, NAMES)


def check_spans() -> None:
    """Raises MovedError if what the connector for spans uses is not where it was."""
    _check(OF_SPANS, NAMES_OF_SPANS)


def check_worker() -> None:
    """Raises MovedError if what the connector uses in the workers is not where it was."""
    _check({}, OF_WORKER)


def check_scheduler(scheduler: Any) -> None:
    """Raises MovedError if a scheduler lacks attributes."""
    moved = [f"Scheduler.{name}" for name in OF_SCHEDULER if not _has(scheduler, name)]
    if not moved:
        (manager, *_) = scheduler.kv_cache_manager.coordinator.single_type_managers
        moved += [
            f"{type(manager).__name__}.{name}" for name in OF_MANAGER if not _has(manager, name)
        ]
        block = scheduler.kv_cache_manager.block_pool.blocks[0]
        moved += [f"{type(block).__name__}.{name}" for name in OF_BLOCK if not _has(block, name)]
    if moved:
        raise MovedError(moved)


def check_request(request: Any) -> None:
    """Raises MovedError if a request lacks attributes."""
    if moved := [f"Request.{name}" for name in OF_REQUEST if not _has(request, name)]:
        raise MovedError(moved)


def _check(functions: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> None:
    if moved := [*_moved(functions), *(name for name in names if _found(name) is None)]:
        raise MovedError(moved)


def _moved(functions: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name, parameters in functions.items():
        function = _found(name)
        if function is None:
            yield name
            continue
        known = inspect.signature(function).parameters
        for parameter in parameters:
            if parameter not in known:
                yield f"{name}({parameter})"


def _found(name: str) -> Any:
    """What a dotted name means; None if there is nothing."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(".".join(parts[:end]))
        except ImportError:
            continue
        rest = ".".join(parts[end:])
        return attrgetter(rest)(module) if _has(module, rest) else None
    return None


def _has(thing: Any, path: str) -> bool:
    try:
        attrgetter(path)(thing)
    except AttributeError:
        return False
    return True
