"""The plug-in that vLLM finds when relquery is installed beside it (entry point
`vllm.general_plugins`)."""

from __future__ import annotations

from contextlib import suppress

CONNECTOR = "SpanConnector"


def register() -> None:
    """Make the connector for spans known by its name.

    vLLM calls it in every process, and again, also for those who use nothing of relquery: another
    vLLM, where all of this has moved, must start as if relquery were not there.
    """
    with suppress(ImportError, AttributeError, TypeError, ValueError):
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

        KVConnectorFactory.register_connector(CONNECTOR, "relquery.vllm.spans", CONNECTOR)
