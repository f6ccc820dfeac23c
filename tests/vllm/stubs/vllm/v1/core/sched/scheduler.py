"""A scheduler that keeps the rules of vLLM's, first come, first served, with fewer features."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.block_pool import BlockPool, KVCacheBlock
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import FCFSRequestQueue, RequestQueue
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import Request, RequestStatus


@dataclass
class SchedulerOutput:
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    kv_connector_metadata: Any = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


class Scheduler:
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
        self.policy, self.pause_state = "fcfs", PauseState.UNPAUSED
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: RequestQueue = FCFSRequestQueue()
        self.ready: set[str] = set()
        self.connector: Any = None
        self.invalid: set[int] = set()
        """Blocks whose states could not be loaded in the last step."""

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
        left, was_preempted, at = self.max_num_scheduled_tokens, False, 0
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
                    break
            else:
                self._take(request, tokens, output)
                left -= tokens
                at += 1
                continue
            break
        return 0 if was_preempted else left

    def _part(self, tokens: int) -> int:
        most = self.long_prefill_token_threshold
        return min(tokens, most) if most else tokens

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
                self.running.remove(request)
                request.status = RequestStatus.FINISHED_STOPPED
                self._free_request(request)
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

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> None:
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
            hits.append(found[0])
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
        own = self.held[request.request_id]
        for at in range(
            min(len(request.block_hashes), request.num_computed_tokens // self.block_size)
        ):
            self.pool.name(own[at], request.block_hashes[at])

    def _free_blocks(self, request: Request) -> None:
        self.pool.free_blocks(reversed(self.held.pop(request.request_id, [])))
