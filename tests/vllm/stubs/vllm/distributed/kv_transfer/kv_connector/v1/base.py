"""Connectors: what the scheduler and the workers ask of one."""

from __future__ import annotations

from enum import Enum
from typing import Any


class KVConnectorRole(Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata:
    pass


class KVConnectorBase_V1:  # noqa: N801
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        self._vllm_config = vllm_config
        self._metadata: Any = None

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        self._metadata = connector_metadata

    def _get_connector_metadata(self) -> Any:
        return self._metadata

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None: ...

    def on_new_request(self, request: Any) -> None: ...

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return 0, False

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None: ...

    def build_connector_meta(self, scheduler_output: Any) -> Any: ...

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, Any]:
        return False, None

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None: ...

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set()
