"""Connectors by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar


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
