"""What vLLM finds when relquery is installed beside it (entry point `vllm.general_plugins`)."""

from __future__ import annotations

from contextlib import suppress

CONNECTOR = "SpanConnector"


def register() -> None:
    """Make the connector for spans known by its name. Costs nothing until it is asked for."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    with suppress(ValueError):  # known already: vLLM calls this in every process, and again
        KVConnectorFactory.register_connector(CONNECTOR, "relquery.vllm.spans", CONNECTOR)
