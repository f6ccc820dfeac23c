"""A stand-in for vLLM: what the plug-in uses of it, with the pinned signatures.

Its scheduler keeps the rules of vLLM's, first come, first served. Its offline engine answers with
the last characters of a prompt in capitals; its model has one token for each character.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest


def init_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


class VLLMValidationError(Exception):
    """No ValueError, as in vLLM."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


# The offline engine.

RequestOutputKind = Enum("RequestOutputKind", ["CUMULATIVE", "DELTA", "FINAL_ONLY"])


@dataclass
class StructuredOutputsParams:
    json: str | None = None


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    max_tokens: int = 16
    detokenize: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    allowed_token_ids: list[int] | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise VLLMValidationError(f"temperature must be in [0, 2], got {self.temperature}.")


def logprob(prompt: list[int], token: int) -> float:
    return -((sum(prompt) * 31 + token * 17) % 13) / 4


class LLMEngine:
    """Answers three requests a step, the oldest first."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(max_model_len=500)
        self.open: dict[str, tuple[list[int], Any]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.aborted: list[str] = []
        self.engine_core = SimpleNamespace(shutdown=lambda: None)

    def add_request(self, request_id: str, prompt: Any, params: Any) -> None:
        tokens = prompt["prompt_token_ids"]
        if len(tokens) > self.model_config.max_model_len:
            raise VLLMValidationError("The prompt is longer than the model's context.")
        self.open[request_id] = (tokens, params)
        self.asked.append(("".join(map(chr, tokens)), params))

    def abort_request(self, request_ids: list[str]) -> None:
        self.aborted += request_ids
        for request_id in request_ids:
            self.open.pop(request_id, None)

    def step(self) -> list[Any]:
        return [_answered(name, *self.open.pop(name)) for name in [*self.open][:3]]


def _answered(name: str, tokens: list[int], params: Any) -> Any:
    if params.allowed_token_ids is not None:
        logs = {token: logprob(tokens, token) for token in params.logprob_token_ids}
        text, reason = chr(max(params.allowed_token_ids, key=logs.__getitem__)), "length"
        logprobs = [{token: SimpleNamespace(logprob=log) for token, log in logs.items()}]
    else:
        text = "".join(map(chr, tokens)).strip()[-4:].upper()[: params.max_tokens]
        reason, logprobs = "length" if params.max_tokens < 4 else "stop", None
    given = SimpleNamespace(
        text=text, token_ids=[*map(ord, text)], finish_reason=reason, logprobs=logprobs
    )
    return SimpleNamespace(
        request_id=name,
        finished=True,
        prompt_token_ids=tokens,
        num_cached_tokens=2,
        outputs=[given],
    )


class Tokenizer:
    eos_token_id = 0
    chat_template = None

    def __call__(
        self, texts: list[str], add_special_tokens: bool, return_attention_mask: bool
    ) -> dict[str, list[list[int]]]:
        start = [1] if add_special_tokens else []
        return {"input_ids": [[*start, *map(ord, text)] for text in texts]}


class LLM:
    def __init__(self, model: str, **kwargs: Any) -> None:
        if model == "nowhere":
            raise OSError("Repo id must use alphanumeric chars")
        if "nonsense" in kwargs:
            raise TypeError("unexpected keyword argument 'nonsense'")
        self.llm_engine = LLMEngine()

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer()


# Requests and blocks.

FinishReason = IntEnum("FinishReason", ["STOP", "LENGTH", "ABORT", "ERROR"])
PauseState = IntEnum("PauseState", ["UNPAUSED", "PAUSED_NEW", "PAUSED_ALL"])
RequestStatus = IntEnum(
    "RequestStatus",
    "WAITING WAITING_FOR_GRAMMAR RUNNING PREEMPTED FINISHED_STOPPED FINISHED_ABORTED "
    "FINISHED_LENGTH_CAPPED FINISHED_ERROR",
)


@dataclass
class EngineCoreOutput:
    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None


@dataclass
class EngineCoreOutputs:
    outputs: list[EngineCoreOutput] = field(default_factory=list)


@dataclass(eq=False)
class Request:
    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    block_size: int
    sampling_params: SamplingParams
    cache_salt: str | None = None
    status: RequestStatus = RequestStatus.WAITING
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    num_in_flight_tokens: int = 0
    client_index: int = 0
    skip_reading_prefix_cache: bool = False
    block_hashes: list[bytes] = field(default_factory=list)
    _output_token_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.prompt_token_ids)
        self.update_block_hashes()

    @property
    def num_output_tokens(self) -> int:
        return len(self._output_token_ids)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    def update_block_hashes(self) -> None:
        tokens, size = [*self.prompt_token_ids, *self._output_token_ids], self.block_size
        for end in range((len(self.block_hashes) + 1) * size, len(tokens) + 1, size):
            before = self.block_hashes[-1] if self.block_hashes else repr(self.cache_salt).encode()
            own = repr(tokens[end - size : end]).encode()
            self.block_hashes.append(hashlib.sha256(before + own).digest())


class RequestQueue:
    """Only its signatures: our scheduler brings a queue of its own."""

    def add_request(self, request: Any) -> None: ...
    def pop_request(self) -> Any: ...
    def peek_request(self) -> Any: ...
    def prepend_request(self, request: Any) -> None: ...
    def prepend_requests(self, requests: Any) -> None: ...
    def remove_request(self, request: Any) -> None: ...
    def remove_requests(self, requests: Any) -> None: ...


_GROUP = bytes(4)
"""A block's key is its hash, and the number of the group of caches."""


def get_block_hash(key: bytes) -> bytes:
    return key[: -len(_GROUP)]


@dataclass(eq=False)
class KVCacheBlock:
    block_id: int
    ref_cnt: int = 0
    hash: bytes | None = None


@dataclass
class KVCacheBlocks:
    blocks: tuple[list[KVCacheBlock], ...]

    def get_block_ids(self) -> tuple[list[int], ...]:
        return tuple([block.block_id for block in group] for group in self.blocks)


class BlockHashToBlockMap:
    def __init__(self) -> None:
        self._blocks: dict[bytes, dict[int, KVCacheBlock]] = {}

    def get_one_block(self, key: bytes) -> KVCacheBlock | None:
        return next(iter(self._blocks.get(key, {}).values()), None)

    def insert(self, key: bytes, block: KVCacheBlock) -> None:
        self._blocks.setdefault(key, {})[block.block_id] = block

    def pop(self, key: bytes, block_id: int) -> KVCacheBlock | None:
        return self._blocks.get(key, {}).pop(block_id, None)


class BlockPool:
    """Blocks: held ones, and free ones whose states can still be found."""

    def __init__(self, count: int) -> None:
        self.num_gpu_blocks = count
        self.blocks = [KVCacheBlock(at) for at in range(count)]
        self.free = OrderedDict((block.block_id, block) for block in self.blocks)
        self.cached_block_hash_to_block = BlockHashToBlockMap()

    def get_num_free_blocks(self) -> int:
        return len(self.free)

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: list[int]
    ) -> list[KVCacheBlock] | None:
        block = self.cached_block_hash_to_block.get_one_block(block_hash + _GROUP)
        return None if block is None else [block] * len(kv_cache_group_ids)

    def touch(self, blocks: list[KVCacheBlock]) -> None:
        for block in blocks:
            if not block.ref_cnt:
                del self.free[block.block_id]
            block.ref_cnt += 1

    def take(self, count: int) -> list[KVCacheBlock]:
        taken = [self.free.popitem(last=False)[1] for _ in range(count)]
        for block in taken:
            self.forget(block)
            block.ref_cnt = 1
        return taken

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0
            if not block.ref_cnt:
                self.free[block.block_id] = block

    def reset_prefix_cache(self) -> bool:
        if len(self.free) < self.num_gpu_blocks:
            return False
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        for block in self.blocks:
            block.hash = None
        return True

    def forget(self, block: KVCacheBlock) -> None:
        if block.hash is not None:
            self.cached_block_hash_to_block.pop(block.hash + _GROUP, block.block_id)
            block.hash = None

    def name(self, block: KVCacheBlock, block_hash: bytes) -> None:
        if block.hash is None:
            block.hash = block_hash
            self.cached_block_hash_to_block.insert(block_hash + _GROUP, block)


# The scheduler.


@dataclass
class SchedulerOutput:
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    kv_connector_metadata: Any = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


class SchedulingPolicy(Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"


class Scheduler:
    """invalid: blocks whose states could not be loaded in the last step."""

    def __init__(
        self, additional_config: Any, blocks: int, block_size: int, tokens: int, seats: int
    ) -> None:
        self.vllm_config = SimpleNamespace(additional_config=additional_config)
        self.kv_cache_config = SimpleNamespace(num_blocks=blocks)
        self.pool = BlockPool(blocks)
        self.held: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        manager = SimpleNamespace(req_to_blocks=self.held, kv_cache_group_id=0)
        self.kv_cache_manager = SimpleNamespace(
            enable_caching=True,
            block_pool=self.pool,
            coordinator=SimpleNamespace(single_type_managers=(manager,)),
        )
        self.max_num_scheduled_tokens, self.max_num_running_reqs = tokens, seats
        self.max_num_active_reqs = seats
        self.long_prefill_token_threshold = 0
        self.block_size = self.hash_block_size = block_size
        self.pause_state = PauseState.UNPAUSED
        self.policy = SchedulingPolicy((additional_config or {}).get("policy_of_vllm", "fcfs"))
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: Any = ()
        self.ready: set[str] = set()
        self.connector: Any = None
        self.invalid: set[int] = set()

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.add_request(request)
        if self.connector is not None:
            self.connector.on_new_request(request)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        assert not throttle_prefills
        output = SchedulerOutput()
        left = self._go_on(output)
        if left > 0:
            self._admit(output, left)
        assert len(self.running) <= self.max_num_running_reqs
        if self.connector is not None:
            output.kv_connector_metadata = self.connector.build_connector_meta(output)
        return output

    def _go_on(self, output: SchedulerOutput) -> int:
        """Tokens that are left for others; none if somebody was preempted."""
        left, at = self.max_num_scheduled_tokens, 0
        was_preempted = False
        while at < len(self.running) and left > 0:
            request = self.running[at]
            tokens = self._part(min(left, request.num_tokens - request.num_computed_tokens))
            if not tokens:  # its last token is being drawn
                at += 1
                continue
            while not self._allocate(request, tokens):
                victim = self.running.pop()
                self._preempt_request(victim, 0.0)
                was_preempted = True
                if victim is request:
                    return 0
            self._take(request, tokens, output)
            left -= tokens
            at += 1
        return 0 if was_preempted else left

    def _part(self, tokens: int) -> int:
        return min(tokens, self.long_prefill_token_threshold or tokens)

    def _admit(self, output: SchedulerOutput, left: int) -> None:
        skipped = []
        while self.waiting and left > 0 and self.pause_state == PauseState.UNPAUSED:
            if len(self.running) >= self.max_num_active_reqs:
                break
            request = self.waiting.pop_request()
            if not self._handle_blocked_waiting_request(request):
                skipped.append(request)
                continue
            hits = self._hits(request)
            done = len(hits) * self.block_size
            loaded: int | None = 0
            if self.connector is not None and not request.skip_reading_prefix_cache:
                loaded, _ = self.connector.get_num_new_matched_tokens(request, done)
            if loaded is None:
                skipped.append(request)
                continue
            done += loaded
            tokens = self._part(min(left, request.num_tokens - done))
            self.pool.touch(hits)
            self.held[request.request_id] = [*hits]
            request.num_computed_tokens = done
            if not self._allocate(request, tokens):
                self._free_blocks(request)
                request.num_computed_tokens = 0
                self.waiting.prepend_request(request)
                break
            if self.connector is not None:
                blocks = KVCacheBlocks((self.held[request.request_id],))
                self.connector.update_state_after_alloc(request, blocks, loaded)
            request.status = RequestStatus.RUNNING
            self.running.append(request)
            self._take(request, tokens, output)
            left -= tokens
        self.waiting.prepend_requests(reversed(skipped))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> dict[int, EngineCoreOutputs]:
        ended = [(name, FinishReason.ERROR) for name in self._fail_invalid()]
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            request = self.requests.get(request_id)
            if request is None:
                continue
            request.num_in_flight_tokens -= tokens
            if request.num_computed_tokens < request.num_tokens:
                continue
            request._output_token_ids.append(model_runner_output(request))
            request.update_block_hashes()
            if request.num_output_tokens == request.max_tokens:
                self.finish_requests(request_id, RequestStatus.FINISHED_STOPPED)
                ended.append((request_id, FinishReason.STOP))
        outputs = [EngineCoreOutput(name, [], reason) for name, reason in ended]
        return {0: EngineCoreOutputs(outputs)} if outputs else {}

    def _fail_invalid(self) -> list[str]:
        failed = [
            request
            for request in self.running
            if self.invalid & {block.block_id for block in self.held[request.request_id]}
        ]
        for number in self.invalid:
            self.pool.forget(self.pool.blocks[number])
        self.invalid = set()
        for request in failed:
            for block in self.held[request.request_id]:
                if block.ref_cnt == 1:
                    self.pool.forget(block)
            self.finish_requests(request.request_id, RequestStatus.FINISHED_ERROR)
        return [request.request_id for request in failed]

    def finish_requests(self, request_ids: str, finished_status: RequestStatus) -> None:
        request = self.requests.get(request_ids)
        if request is None:
            return
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove_requests([request])
        request.status = finished_status
        self._free_request(request)

    def _free_request(self, request: Request) -> None:
        if self.connector is not None:
            blocks = [block.block_id for block in self.held[request.request_id]]
            self.connector.request_finished(request, blocks)
        self._free_blocks(request)
        del self.requests[request.request_id]

    def _preempt_request(self, request: Request, timestamp: float) -> None:
        assert request.status == RequestStatus.RUNNING
        self._free_blocks(request)
        request.status, request.num_computed_tokens = RequestStatus.PREEMPTED, 0
        self.waiting.prepend_request(request)

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        if request.status == RequestStatus.WAITING_FOR_GRAMMAR and request.request_id in self.ready:
            request.status = RequestStatus.WAITING
        return bool(request.status != RequestStatus.WAITING_FOR_GRAMMAR)

    def _hits(self, request: Request) -> list[KVCacheBlock]:
        hits = []
        for block_hash in request.block_hashes[: (request.num_tokens - 1) // self.block_size]:
            found = self.pool.get_cached_block(block_hash, [0])
            if found is None:
                break
            hits += found
        return hits

    def _allocate(self, request: Request, tokens: int) -> bool:
        own = self.held[request.request_id]
        needed = -(-(request.num_computed_tokens + tokens) // self.block_size) - len(own)
        if needed > self.pool.get_num_free_blocks():
            return False
        own += self.pool.take(max(0, needed))
        return True

    def _take(self, request: Request, tokens: int, output: SchedulerOutput) -> None:
        request.num_computed_tokens += tokens
        request.num_in_flight_tokens += tokens
        output.num_scheduled_tokens[request.request_id] = tokens
        full = self.held[request.request_id][: request.num_computed_tokens // self.block_size]
        for block, block_hash in zip(full, request.block_hashes, strict=False):
            self.pool.name(block, block_hash)

    def _free_blocks(self, request: Request) -> None:
        self.pool.free_blocks(reversed(self.held.pop(request.request_id, [])))


AsyncScheduler = type("AsyncScheduler", (Scheduler,), {})


# Connectors, and positions of keys.

KVConnectorRole = Enum("KVConnectorRole", ["SCHEDULER", "WORKER"])
KVConnectorMetadata = type("KVConnectorMetadata", (), {})


class KVConnectorBase_V1:  # noqa: N801
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self._vllm_config = vllm_config
        self._metadata: Any = None

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        self._metadata = connector_metadata

    def _get_connector_metadata(self) -> Any:
        return self._metadata

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None: ...
    def on_new_request(self, request: Any) -> None: ...
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any: ...
    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None: ...
    def build_connector_meta(self, scheduler_output: Any) -> Any: ...
    def request_finished(self, request: Any, block_ids: list[int]) -> Any: ...
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None: ...
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...
    def get_block_ids_with_load_errors(self) -> Any: ...


class KVConnectorFactory:
    known: ClassVar[dict[str, tuple[str, str]]] = {}

    @classmethod
    def register_connector(cls, name: str, module_path: str, class_name: str) -> None:
        if name in cls.known:
            raise ValueError(f"Connector '{name}' is already registered.")
        cls.known[name] = (module_path, class_name)

    @classmethod
    def made(cls, name: str) -> Any:
        module, made = cls.known[name]
        return getattr(import_module(module), made)


_ROPE_DICT: dict[tuple[Any, ...], RotaryEmbedding] = {}


class RotaryEmbedding:
    def __init__(
        self, rotary_dim: int, positions: int, base: float, is_neox_style: bool, scale: float = 1.0
    ) -> None:
        self.rotary_dim, self.positions, self.base = rotary_dim, positions, base
        self.is_neox_style, self.scale = is_neox_style, scale

    def _compute_cos_sin_cache(self) -> Any:
        import torch

        steps = torch.arange(0, self.rotary_dim, 2, dtype=torch.float) / self.rotary_dim
        angles = torch.arange(self.positions).float()[:, None] / self.base**steps
        return self.scale * torch.cat((angles.cos(), angles.sin()), -1)


_MODULES = {
    "": "LLM SamplingParams",
    ".exceptions": "VLLMValidationError",
    ".logger": "init_logger",
    ".sampling_params": "RequestOutputKind StructuredOutputsParams",
    ".v1.engine": "EngineCoreOutput EngineCoreOutputs FinishReason",
    ".v1.engine.llm_engine": "LLMEngine",
    ".v1.request": "Request RequestStatus",
    ".v1.core.block_pool": "BlockHashToBlockMap BlockPool",
    ".v1.core.kv_cache_manager": "KVCacheBlocks",
    ".v1.core.kv_cache_utils": "get_block_hash",
    ".v1.core.sched.async_scheduler": "AsyncScheduler",
    ".v1.core.sched.interface": "PauseState",
    ".v1.core.sched.request_queue": "RequestQueue SchedulingPolicy",
    ".v1.core.sched.scheduler": "Scheduler",
    ".distributed.kv_transfer.kv_connector.factory": "KVConnectorFactory",
    ".distributed.kv_transfer.kv_connector.v1.base": (
        "KVConnectorBase_V1 KVConnectorMetadata KVConnectorRole"
    ),
    ".model_executor.layers.rotary_embedding": "RotaryEmbedding _ROPE_DICT",
}


def install(patch: pytest.MonkeyPatch) -> None:
    """`import vllm` gives the stand-in."""
    for path, names in _MODULES.items():
        module = ModuleType(f"vllm{path}")
        module.__spec__ = ModuleSpec(module.__name__, None)
        vars(module).update({name: globals()[name] for name in names.split()})
        patch.setitem(sys.modules, module.__name__, module)
