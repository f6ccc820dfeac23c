"""LOTUS's lazy frames. Their nodes and optimizers are refused when they are used."""

from relquery.frames.lotus.lazyframe import LazyFrame

__all__ = ["LazyFrame"]
