"""The KV connector: spans are computed alone, and copied to where a prompt has them.

scheduler   on_new_request          what a request says of spans; a prompt with spans gets a salt
            get_num_new_matched...  its spans count as computed once all of them are
            update_state_after...   which blocks are to be copied where
            request_finished        a span that was computed keeps its blocks
worker      start_load_kv           copies, before the step computes the rest of the prompt

A prompt whose span nobody has computed is not answered otherwise in silence: it ends with an error.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from relquery.errors import ConfigError
from relquery.vllm.contract import check_spans, check_worker
from relquery.vllm.spans.composite import SPANS
from relquery.vllm.spans.pinned import Key, Part, Pinned, is_span, parts_of, salt_of, span_key

logger = init_logger(__name__)

SHARE = 0.5
"""Of the cache that spans may hold; see `share`."""
_COMPUTED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


@dataclass(slots=True)
class Copies(KVConnectorMetadata):  # type: ignore[misc]
    """What the workers copy before a step.

    sources, targets: blocks. by: positions that the keys of each move. failed: blocks that were to
    be copied, whose span is not there.
    """

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Prompt:
    """A prompt that begins with spans. wrong: what is wrong with it, if anything is."""

    parts: list[Part] = field(default_factory=list)
    wrong: str = ""

    @property
    def tokens(self) -> int:
        return sum(part.length for part in self.parts)


class SpanConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """For `--kv-transfer-config`; see docs/vllm.md.

    Its extra config may say `share`, how much of the cache spans may hold: 0.5 by default. Raises
    ConfigError for a model or a configuration that it does not support, and MovedError.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        check_spans()
        self._spec = _spec_of(kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        if transfer.kv_load_failure_policy != "fail":
            raise ConfigError(
                "kv_load_failure_policy must be 'fail': otherwise a prompt whose span is missing "
                "would be answered as if it had none."
            )
        self._block = int(self._spec.block_size)
        self._pinned: Pinned | None = None
        self._computing: Counter[Key] = Counter()
        self._spans: dict[str, Key] = {}
        self._prompts: dict[str, _Prompt] = {}
        self._copies = Copies()
        self._copier: Any = None
        self._failed: set[int] = set()
        if role == KVConnectorRole.SCHEDULER:
            share = transfer.get_from_extra_config("share", SHARE)
            if not isinstance(share, int | float) or not 0 < share < 1:
                raise ConfigError(f"share is {share!r}; it must be a number between 0 and 1.")
            blocks = int(kv_cache_config.num_blocks)
            longest = -(-int(vllm_config.model_config.max_model_len) // self._block)
            self._most = max(0, min(int(share * blocks), blocks - longest - 1))

    # Of the scheduler.

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """See vLLM."""
        self._pinned = pinned = Pinned(gpu_block_pool, self._most)
        reset = gpu_block_pool.reset_prefix_cache

        def reset_all() -> bool:
            """vLLM resets its own cache first, and cannot while spans hold blocks of it."""
            pinned.clear()
            return bool(reset())

        gpu_block_pool.reset_prefix_cache = reset_all

    def on_new_request(self, request: Any) -> None:
        """See vLLM."""
        sampling = request.sampling_params
        said = (sampling.extra_args or {}) if sampling is not None else {}
        salt, prompt = request.cache_salt, request.prompt_token_ids
        if is_span(said) and prompt is not None:
            if not prompt or len(prompt) % self._block:
                logger.warning(
                    "%s is a span of %d tokens, no multiple of %d: it is not kept",
                    request.request_id,
                    len(prompt),
                    self._block,
                )
                return
            key = self._spans[request.request_id] = span_key(salt, prompt)
            self._computing[key] += 1
        elif SPANS in said:
            try:
                parts = parts_of(said, salt, prompt or [], self._block)
            except ValueError as error:
                self._prompts[request.request_id] = _Prompt(wrong=str(error))
                # Blocks that another prompt has computed would hide that something is wrong.
                request.cache_salt = f"{salt or ''}|{request.request_id}"
            else:
                self._prompts[request.request_id] = _Prompt(parts)
                request.cache_salt = salt_of(salt, parts)
            request.block_hashes.clear()
            request.update_block_hashes()
            if request.skip_reading_prefix_cache:
                # vLLM would compute the spans as plain text, to know their log-probabilities.
                logger.warning("%s: spans give no prompt_logprobs", request.request_id)
                request.skip_reading_prefix_cache = False
                sampling.prompt_logprobs = None

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """See vLLM. None while a span is being computed."""
        prompt = self._prompts.get(request.request_id)
        if prompt is None:
            return 0, False
        if prompt.wrong:
            return min(self._block, request.num_tokens - 1), False
        if self._missing(prompt) & self._computing.keys():
            return None, False
        return max(0, prompt.tokens - num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """See vLLM."""
        prompt = self._prompts.get(request.request_id)
        if prompt is None or not num_external_tokens:
            return
        (targets,) = blocks.get_block_ids()
        if prompt.wrong:
            logger.warning("%s: %s", request.request_id, prompt.wrong)
            self._copies.failed.add(targets[0])
            return
        known = (prompt.tokens - num_external_tokens) // self._block
        missing = self._missing(prompt)
        if missing:
            starts = [part.start for part in prompt.parts if part.key in missing]
            logger.warning(
                "%s: the spans at tokens %s were not computed before it, or were dropped",
                request.request_id,
                ", ".join(map(str, starts)),
            )
            self._copies.failed.update(targets[known : prompt.tokens // self._block])
            return
        assert self._pinned is not None
        for part in prompt.parts:
            for at, source in enumerate(self._pinned.use(part.key), part.start // self._block):
                if at >= known:
                    self._copies.sources.append(source)
                    self._copies.targets.append(targets[at])
                    self._copies.by.append(part.start)

    def build_connector_meta(self, scheduler_output: Any) -> Copies:
        """See vLLM."""
        del scheduler_output
        copies, self._copies = self._copies, Copies()
        return copies

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """See vLLM."""
        self._prompts.pop(request.request_id, None)
        key = self._spans.pop(request.request_id, None)
        if key is not None and self._pinned is not None:
            self._computing[key] -= 1
            self._computing += Counter()  # drops what is zero
            blocks = [*block_ids][: request.num_prompt_tokens // self._block]
            if request.status in _COMPUTED and not self._pinned.pin(key, blocks):
                logger.warning(
                    "%s has %d tokens, more than all spans may hold (%d)",
                    request.request_id,
                    request.num_prompt_tokens,
                    self._most * self._block,
                )
        return False, None

    def reset_cache(self) -> bool:
        """See vLLM."""
        if self._pinned is not None:
            self._pinned.clear()
        return True

    def _missing(self, prompt: _Prompt) -> set[Key]:
        assert self._pinned is not None
        return {part.key for part in prompt.parts} - self._pinned.blocks.keys()

    # Of the workers.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """See vLLM."""
        check_worker()
        from vllm.model_executor.layers.rotary_embedding import _ROPE_DICT

        from relquery.vllm.spans.rotation import Copier, Rotary, key_places

        embeddings = {id(each): each for each in _ROPE_DICT.values()}
        if len(embeddings) != 1:
            raise ConfigError(
                "Spans need a model with one rotary position embedding; this one has "
                f"{len(embeddings)}."
            )
        config = self._vllm_config.model_config.hf_text_config
        if any(not each for each in getattr(config, "no_rope_layers", None) or ()):
            raise ConfigError("Spans need a model that rotates the keys of all layers.")
        name, cache = next(iter(kv_caches.items()))
        layer = self._vllm_config.compilation_config.static_forward_context[name]

        def write(keys: Any, values: Any, into: Any, slots: Any) -> None:
            layer.impl.do_kv_cache_update(layer, keys, values, into, slots)

        (embedding,) = embeddings.values()
        rotary = Rotary.of(embedding)
        rotary = Rotary(rotary.table.to(cache.device), rotary.width, rotary.is_split)
        spec = self._spec
        places = key_places(cache, spec.num_kv_heads, spec.head_size, self._block, write)
        self._copier = Copier([*kv_caches.values()], rotary, places)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """See vLLM."""
        del forward_context, kwargs
        copies = self._get_connector_metadata()
        self._failed |= copies.failed
        if copies.sources:
            self._copier.copy(copies.sources, copies.targets, copies.by)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """See vLLM."""
        failed, self._failed = self._failed, set()
        return failed

    def wait_for_layer_load(self, layer_name: str) -> None:
        """See vLLM."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """See vLLM."""

    def wait_for_save(self) -> None:
        """See vLLM."""


def _spec_of(config: Any) -> Any:
    """The form of the cache. Raises ConfigError if its states cannot be copied."""
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    kinds = {type(spec).__name__ for spec in specs}
    if len(specs) != 1 or kinds != {"FullAttentionSpec"} or specs[0].sliding_window is not None:
        raise ConfigError(
            "Spans need a model with full attention in all layers; this one has "
            f"{', '.join(sorted(kinds)) or 'none'}."
        )
    if not specs[0].dtype.is_floating_point or specs[0].dtype.itemsize < 2:
        raise ConfigError("Spans need keys that are not quantized: leave out --kv-cache-dtype.")
    return specs[0]
