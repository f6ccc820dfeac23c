"""vLLM's scheduler, with the policies of relquery deciding each step.

A policy sees the requests as it does in the engine and plans a step: which running requests go on,
which waiting ones begin, and who gives up its blocks. vLLM's own `schedule` then carries it out: it
is shown only the planned requests, in their order, and allocates, caches and batches as always. A
plan may also say who begins in the next few steps. Then these take no planning.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import RequestStatus

from relquery.config import EngineConfig
from relquery.engine.scheduling.plan import Plan
from relquery.engine.scheduling.policies.catalogue import make_policy
from relquery.errors import ConfigError
from relquery.vllm.contract import check_code, check_request, check_scheduler
from relquery.vllm.mirror import Mirror, Pool
from relquery.vllm.settings import PluginSettings


class Waiting(RequestQueue):  # type: ignore[misc]
    """Requests in order. All but iterating is O(1) a request, as policies begin them in any order:
    in vLLM's own queue, each that leaves is searched from the front, among thousands."""

    def __init__(self, requests: Iterable[Any] = ()) -> None:
        self._requests: OrderedDict[Any, None] = OrderedDict.fromkeys(requests)

    def add_request(self, request: Any) -> None:
        """Add a request at the end."""
        self._requests[request] = None

    def pop_request(self) -> Any:
        """Take the first request. Raises KeyError if there is none."""
        return self._requests.popitem(last=False)[0]

    def peek_request(self) -> Any:
        """The first request. Raises IndexError if there is none."""
        for request in self._requests:
            return request
        raise IndexError("nobody waits")

    def prepend_request(self, request: Any) -> None:
        """Add a request at the front."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Add requests at the front, one after another: the last one comes first."""
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        """Remove a request. Raises KeyError if it is not there."""
        del self._requests[request]

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove those of the requests that are there."""
        for request in requests:
            self._requests.pop(request, None)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._requests)


logger = init_logger(__name__)

_UNASKED = 16
"""Steps after a plan, at most, in which its requests to come begin without another one."""
_READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class _Blocked(NamedTuple):
    """A request that cannot run yet, since when, and its relQuery's deadline."""

    request: Any
    since: float
    deadline: float | None


class RelServeScheduler(AsyncScheduler):  # type: ignore[misc]
    """A scheduler for `--scheduler-cls`; see docs/vllm.md. Raises ConfigError and MovedError.

    It plans while the last step still runs, if vLLM schedules asynchronously: then a token that is
    being drawn counts as drawn.
    """

    running: list[Any]
    waiting: Waiting
    max_num_active_reqs: int

    def __init__(self, *given: Any, **named: Any) -> None:
        check_code()
        super().__init__(*given, **named)
        check_scheduler(self)
        if self.policy != SchedulingPolicy.FCFS:
            raise ConfigError(
                f"--scheduling-policy {self.policy.value} and relquery's scheduler both decide who "
                "runs next. Leave it out: relquery_deadline in vllm_xargs says that a request is "
                "urgent, and weights in --additional-config give tenants shares."
            )
        self.waiting = Waiting(self.waiting)
        self.settings = settings = PluginSettings.of(self.vllm_config.additional_config)
        limits = EngineConfig(
            max_num_batched_tokens=self.max_num_scheduled_tokens,
            max_num_seqs=self.max_num_running_reqs,
            block_size=self.hash_block_size,
            cache_tokens=self.kv_cache_config.num_blocks * self.block_size,
            prefix_caching=self.kv_cache_manager.enable_caching,
            policy=settings.policy,
            starvation=settings.starvation,
            aging=settings.aging,
            weights=settings.weights,
            tail=settings.tail,
        )
        coordinator = self.kv_cache_manager.coordinator
        manager = coordinator.single_type_managers[0]
        pool = Pool(self.kv_cache_manager.block_pool, [manager.kv_cache_group_id])
        policy = make_policy(settings.policy, settings.of_policy(limits))
        self._mirror = Mirror(
            policy, limits, pool, manager.req_to_blocks.__getitem__, time.monotonic
        )
        self._blocked: dict[str, _Blocked] = {}
        self._late: list[Any] = []
        self._began = 0.0
        self._ahead: deque[Any] | None = None  # who begins next; None to ask the policy
        self._unasked = 0
        self._idle = self._is_checked = False
        self.seconds: deque[float] = deque(maxlen=1000)
        """What planning took in each step; the last thousand."""
        logger.info("relquery schedules with the policy %s", settings.policy)

    def add_request(self, request: Any) -> None:
        """Queue a request; see vLLM."""
        if not self._is_checked:
            check_request(request)
            self._is_checked = True
        self._ahead = None
        is_new = request.request_id not in self.requests
        super().add_request(request)
        if is_new:
            now = self._mirror.now()
            if request.status in _READY:
                self._mirror.add(request, now)
            else:
                deadline = self._mirror.deadline(request, now)
                self._blocked[request.request_id] = _Blocked(request, now, deadline)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """The next step; see vLLM."""
        began = self._began = time.monotonic()
        self._put_back_preempted()  # outside of steps, when the cache is reset
        self._unblock()
        self._end_late()
        beginning = self._beginning()
        if beginning is not None:
            self._unasked += 1
            with self._queued(beginning):
                self._note(began)
                output = super().schedule(throttle_prefills)
        else:
            output = self._as_planned(began, throttle_prefills)
        # Where nothing could be scheduled as planned, vLLM's own order goes on for one step.
        is_stuck = not output.total_num_scheduled_tokens and not self._is_at_rest()
        self._idle = is_stuck and not self._idle
        self._mirror.scheduled(output.num_scheduled_tokens)
        self._put_back_preempted()
        return output

    def _as_planned(self, began: float, throttle_prefills: bool) -> Any:
        """The next step, as the policy plans it."""
        plan = self._mirror.plan() if self._mirror.open else Plan()
        ahead, self._unasked = plan.ahead, 0
        self._ahead = None if ahead is None else deque(map(self._mirror.own, ahead))
        if self._idle or not (plan.work or plan.preempt) or self._all_go_on(plan):
            self._note(began)
            return super().schedule(throttle_prefills)
        self._preempt(plan)
        with self._shown(plan):
            self._note(began)
            return super().schedule(throttle_prefills)

    def _is_at_rest(self) -> bool:
        """Whether there is nothing to schedule: all wait for tokens that are being drawn, say."""
        if not self._mirror.open or self.pause_state != PauseState.UNPAUSED:
            return True
        return any(request.num_in_flight_tokens for request in self.running)

    def _beginning(self) -> list[Any] | None:
        """Who may begin in a step that needs no plan; None if it needs one."""
        ahead, free = self._ahead, self.max_num_active_reqs - len(self.running)
        if ahead is None or self._unasked >= _UNASKED or self._idle or self._blocked:
            return None
        while ahead and ahead[0] not in self.waiting:  # it has begun, or ended
            ahead.popleft()
        if free <= 0:
            return []
        if len(ahead) < free and len(ahead) < len(self.waiting):
            return None
        beginning = [request for request in ahead if request in self.waiting][:free]
        blocks = sum(each.num_tokens // self.block_size + 1 for each in beginning)
        room = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return beginning if room >= blocks + len(self.running) else None

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Take in what a step has drawn; see vLLM."""
        tokens = scheduler_output.num_scheduled_tokens
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if tokens:
            decoded = [*tokens.values()].count(1)
            prompts = scheduler_output.total_num_scheduled_tokens - decoded
            predicted = self.settings.cost.seconds(prompts, decoded)
            self._mirror.experience.step(time.monotonic() - self._began, predicted)
        late, self._late = self._late, []
        for request in late:  # vLLM tells clients nothing of what the scheduler ends by itself
            output = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ABORT)
            outputs.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(output)
        return outputs

    def _free_request(self, request: Any, *given: Any, **named: Any) -> Any:
        self._blocked.pop(request.request_id, None)
        is_answered = request.status != RequestStatus.FINISHED_ABORTED
        self._mirror.end(request.request_id, is_answered)
        return super()._free_request(request, *given, **named)

    def _unblock(self) -> None:
        """Mirror the requests that waited for a grammar, say, and can run now; and those whose
        deadline has passed, which end.
        """
        for request, since, deadline in [*self._blocked.values()]:
            is_ready = request.status in _READY or self._handle_blocked_waiting_request(request)
            if is_ready or (deadline is not None and deadline <= self._mirror.now()):
                del self._blocked[request.request_id]
                self._mirror.add(request, since)

    def _end_late(self) -> None:
        """End the requests whose deadline has passed."""
        for request_id, why in self._mirror.late():
            logger.info("%s: %s", request_id, why)
            self._late.append(self.requests[request_id])
            self.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def _all_go_on(self, plan: Plan) -> bool:
        """Whether the plan is what vLLM does by itself: all seats are taken, and nobody leaves."""
        seats = len(self.running)
        return seats == self.max_num_active_reqs == len(plan.work) and not plan.preempt

    def _preempt(self, plan: Plan) -> None:
        for each in plan.preempt:
            request = self._mirror.own(each)
            self.running.remove(request)
            self._preempt_request(request, time.monotonic())
            self._mirror.put_back(each)

    def _put_back_preempted(self) -> None:
        """Note whom vLLM has preempted by itself."""
        for each in [*self._mirror.open.running]:
            if self._mirror.own(each).status == RequestStatus.PREEMPTED:
                self._mirror.put_back(each)
                self._ahead = None

    @contextmanager
    def _shown(self, plan: Plan) -> Iterator[None]:
        """A block in which vLLM sees the planned requests alone, in their order."""
        running, seats = self.running, self.max_num_active_reqs
        planned = [self._mirror.own(work.request) for work in plan.work]
        begun = set(map(id, running))
        going_on = [request for request in planned if id(request) in begun]
        shown = set(map(id, going_on))
        hidden = [request for request in running if id(request) not in shown]
        beginning = [request for request in planned if id(request) not in begun]
        self.running = going_on
        self.max_num_active_reqs = seats - len(hidden)
        try:
            with self._queued(beginning):
                yield
        finally:
            self.max_num_active_reqs = seats
            self.running = _merged(running, self.running, hidden)

    @contextmanager
    def _queued(self, beginning: list[Any]) -> Iterator[None]:
        """A block in which vLLM sees these alone of the waiting requests."""
        waiting = self.waiting
        self.waiting = queue = Waiting(beginning)
        try:
            yield
        finally:
            self.waiting = waiting
            if queue:  # not all have begun, or somebody was preempted
                self._ahead = None
            waiting.remove_requests(each for each in beginning if each not in queue)
            for request in reversed([*queue]):
                if request not in waiting:  # vLLM preempted it by itself
                    waiting.prepend_request(request)

    def _note(self, began: float) -> None:
        self.seconds.append(time.monotonic() - began)


def _merged(before: Iterable[Any], after: list[Any], hidden: Iterable[Any]) -> list[Any]:
    """The running requests in the order of before, then those that have begun."""
    now, unseen = set(map(id, after)), set(map(id, hidden))
    kept = [request for request in before if id(request) in now or id(request) in unseen]
    known = set(map(id, kept))
    return kept + [request for request in after if id(request) not in known]
