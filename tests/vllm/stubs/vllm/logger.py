"""Stands in for vLLM's module."""

from __future__ import annotations

import logging


def init_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)
