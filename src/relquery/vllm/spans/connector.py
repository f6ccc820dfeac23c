"""The KV connector: spans are computed alone, and copied to where a prompt has them.

scheduler   on_new_request          what a request says of spans; a prompt with spans gets a salt
            get_num_new_matched...  its spans count as computed once all of them are
            update_state_after...   which blocks are to be copied where
            request_finished        a span that was computed keeps its blocks
worker      start_load_kv           copies, before the step computes the rest of the prompt

A prompt whose span nobody has computed is not answered otherwise in silence: it ends with an error.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole

from relquery.errors import ConfigError, unknown
from relquery.vllm.contract import check_spans, check_worker
from relquery.vllm.spans.requests import Copies, Pinned, SpanRequests

SHARE = 0.5
"""Of the cache that spans may hold; see `share`."""


class SpanConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """For `--kv-transfer-config`; see docs/vllm.md. vLLM makes one in each process.

    Its extra config may say `share`, how much of the cache spans may hold: 0.5 by default. Raises
    ConfigError for a model or a configuration that it does not support, and MovedError.
    """

    requests: SpanRequests
    """In the scheduler's process."""
    copier: Any
    """In a worker's process: a Copier."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        check_spans()
        self._spec = spec = _spec_of(kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        if transfer.kv_load_failure_policy != "fail":
            raise ConfigError(
                "kv_load_failure_policy must be 'fail': otherwise a prompt whose span is missing "
                "would be answered as if it had none."
            )
        if transfer.kv_role != "kv_both":
            raise ConfigError("kv_role must be 'kv_both': what computes spans reads them, too.")
        extra = transfer.kv_connector_extra_config
        for name in extra:
            if name != "share":
                raise ConfigError(unknown("setting", name, ["share"], of="SpanConnector"))
        self._failed: set[int] = set()
        if role == KVConnectorRole.SCHEDULER:
            share = extra.get("share", SHARE)
            if not isinstance(share, int | float) or not 0 < share < 1:
                raise ConfigError(f"share is {share!r}; it must be a number between 0 and 1.")
            blocks = int(kv_cache_config.num_blocks)
            longest = -(-int(vllm_config.model_config.max_model_len) // int(spec.block_size))
            self._most = max(0, min(int(share * blocks), blocks - longest - 1))

    # Of the scheduler.

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """See vLLM."""
        pinned = Pinned(gpu_block_pool, self._most)
        self.requests = SpanRequests(pinned, int(self._spec.block_size))
        reset = gpu_block_pool.reset_prefix_cache

        def reset_all() -> bool:
            """vLLM resets its own cache first, and cannot while spans hold blocks of it."""
            pinned.clear()
            return bool(reset())

        gpu_block_pool.reset_prefix_cache = reset_all

    def on_new_request(self, request: Any) -> None:
        """See vLLM."""
        self.requests.take_in(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """See vLLM."""
        return self.requests.to_load(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """See vLLM."""
        (targets,) = blocks.get_block_ids()
        self.requests.load(request, targets, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Copies:
        """See vLLM."""
        del scheduler_output
        return self.requests.taken()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """See vLLM."""
        self.requests.end(request, [*block_ids])
        return False, None

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
        rotary = Rotary.of(embedding, cache.device)
        spec = self._spec
        places = key_places(cache, spec.num_kv_heads, spec.head_size, int(spec.block_size), write)
        self.copier = Copier([*kv_caches.values()], rotary, places)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """See vLLM."""
        del forward_context, kwargs
        copies = self._get_connector_metadata()
        self._failed |= copies.failed
        if copies.sources:
            self.copier.copy(copies.sources, copies.targets, copies.by)

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
