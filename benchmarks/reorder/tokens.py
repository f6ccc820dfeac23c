"""Llama 3's tokenization, from the ranks that come with the model's weights."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, cast

import numpy as np

from relquery.arrays import Int32s
from relquery.reordering.cost.tokens import Encode

LINE = re.compile(r"(?<=\n)(?=[A-Za-z])")
# The pieces that the model's pre-tokenizer cuts a text into; bytes then merge inside each piece.
PIECE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def llama3(path: Path) -> Encode | None:
    """Token ids of texts, without special tokens; None without the file or `tokenizers`."""
    try:
        tokenizer = _build(path.read_bytes())
    except (ImportError, OSError):
        return None
    return cast(Encode, _Remembering(tokenizer))  # arrays of ids are sequences too


class _Remembering:
    """Encodes each line once, because no token spans a line break and a following letter."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, Int32s] = {}

    def __call__(self, texts: list[str]) -> list[Int32s]:
        cut = [LINE.split(text) for text in texts]
        new = list({line for lines in cut for line in lines} - self._known.keys())
        encoded = self._tokenizer.encode_batch(new, add_special_tokens=False)
        for line, each in zip(new, encoded, strict=True):
            self._known[line] = np.array(each.ids, np.int32)
        return [np.concatenate([self._known[line] for line in lines]) for lines in cut]


def _build(ranks: bytes) -> Any:
    """A byte-pair tokenizer, built from lines "base64 of a token's bytes, rank"."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    tokens = [base64.b64decode(line.split()[0]) for line in ranks.splitlines()]
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    merges = [pair for token in tokens if len(token) > 1 for pair in _pairs(token, rank_of)]
    spell = dict(enumerate(_letters()))
    written = {token: "".join([spell[byte] for byte in token]) for token in tokens}
    tokenizer = Tokenizer(
        models.BPE(
            vocab={written[token]: rank for token, rank in rank_of.items()},
            merges=[(written[a], written[b]) for a, b in merges],
            ignore_merges=True,  # a piece that is a token stays whole
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _pairs(token: bytes, rank_of: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Pairs that merge into a token, starting with the pair that forms first."""
    cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
    pairs = [pair for pair in cuts if pair[0] in rank_of and pair[1] in rank_of]
    return sorted(pairs, key=lambda pair: (rank_of[pair[0]], rank_of[pair[1]]))


def _letters() -> list[str]:
    """The character that a byte-level tokenizer uses for each byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    further = iter(range(256, 512))
    return [chr(byte if byte in printable else next(further)) for byte in range(256)]
