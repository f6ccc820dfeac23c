"""Hashes of the items of inputs, by which a task finds the partition of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.spark.tasks.partitions import Partitions, Sample
from relquery.sql import names as ours

PLACE = f"{ours.PREFIX}partition"
HASHES, LENGTHS = f"{ours.PREFIX}hashes", f"{ours.PREFIX}lengths"
DRAWN = pa.schema([(HASHES, pa.list_(pa.int64())), (LENGTHS, pa.list_(pa.int64()))])
_AROUND = 6  # characters around the name and the text of a field in a prompt
_FIRST = 1 << 10  # times as much as others weigh those that every prompt begins with


@dataclass(frozen=True, slots=True)
class Items:
    """The fields of a call that prompts share in any order. columns: their names in a frame.

    names: as the model sees them. first: whether all prompts begin with the field.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    first: tuple[bool, ...]

    def of(self, batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """(rows, fields): the hash of each item, and what it weighs."""
        found = [
            _hashed(batch.column(batch.schema.get_field_index(column)), name, first)
            for column, name, first in zip(self.columns, self.names, self.first, strict=True)
        ]
        empty = np.zeros((batch.num_rows, 0), np.int64)
        hashes = np.column_stack([one[0] for one in found]) if found else empty
        lengths = np.column_stack([one[1] for one in found]) if found else empty
        return hashes, lengths

    def drawn(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The items of a sample, for the planner."""
        for batch in batches:
            hashes, lengths = self.of(batch)
            columns = [pa.array(list(table), pa.list_(pa.int64())) for table in (hashes, lengths)]
            yield pa.RecordBatch.from_arrays(columns, schema=DRAWN)


@dataclass(frozen=True, slots=True)
class Placing:
    """Gives each input its partition, in the column PLACE."""

    items: Items
    partitions: Partitions

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with that column."""
        for batch in batches:
            places = self.partitions.of(self.items.of(batch)[0])
            yield batch.append_column(PLACE, pa.array(places, pa.int32()))


def sample_of(drawn: pa.Table, total: int) -> Sample:
    """The sample that tasks have drawn. total: of how many inputs."""
    hashes, lengths = (
        np.array(drawn.column(name).to_pylist(), np.int64).reshape(drawn.num_rows, -1)
        for name in (HASHES, LENGTHS)
    )
    return Sample(hashes, lengths, total)


def _hashed(column: pa.Array, name: str, is_first: bool) -> tuple[Int64s, Int64s]:
    coded = column.dictionary_encode(null_encoding="encode")
    texts = coded.dictionary.to_pylist()
    label = name.encode("utf-8", "surrogatepass")
    hashes = np.array([_hash(label, text) for text in texts], np.int64)
    lengths = np.array([len(name) + len(text or "null") + _AROUND for text in texts], np.int64)
    codes = coded.indices.to_numpy(zero_copy_only=False)
    return hashes[codes], lengths[codes] * (_FIRST if is_first else 1)


def _hash(label: bytes, text: str | None) -> int:
    content = b"\0" if text is None else b"\1" + text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, key=hashlib.md5(label).digest())
    return int.from_bytes(digest.digest(), "little", signed=True)
