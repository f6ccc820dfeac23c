"""Prompts as token ids, and the tree of all prefixes that they share.

Also prompts that are put together of the tokens of their items. This misses tokens that span two
items, so it only serves to compare schedules. Reported numbers are counted on whole prompts.

Text is tokenised as whole prompts. So a token that spans two fields is counted as the model sees
it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relquery import _native
from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError
from relquery.reordering.items import Beginnings, Items, agreement, least_table

Encode = Callable[[list[str]], Sequence[Sequence[int]]]
BATCH = 4096  # number of texts per call of the tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Prompts as token ids, in the order sent.

    ids: (tokens,), all prompts joined. offsets: (n + 1,), prompt i is
        `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: Int32s
    offsets: Int64s

    @classmethod
    def of(cls, prompts: Iterable[Sequence[int] | npt.NDArray[np.integer]]) -> Tokens:
        """From one sequence of ids per prompt."""
        arrays = [np.asarray(prompt, dtype=np.int32) for prompt in prompts]
        offsets = np.fromiter(accumulate(map(len, arrays), initial=0), np.int64, len(arrays) + 1)
        return cls(np.concatenate([np.empty(0, np.int32), *arrays]), offsets)

    @property
    def lengths(self) -> Int64s:
        """(n,), tokens of each prompt."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def tokenize(texts: Sequence[str], encode: Encode) -> Tokens:
    """Token ids of whole prompts.

    encode: returns one sequence of ids per text; it decides on special tokens.
    Raises ConfigError if the number of sequences differs from the number of texts, or for anything
    that is not an id: an integer from 0 to below 2^31.
    """
    prompts: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        encoded = encode(batch)
        if not isinstance(encoded, Collection) or isinstance(encoded, str | Mapping):
            raise _no_ids(encoded)
        if len(encoded) != len(batch):
            raise ConfigError(
                f"The tokenizer returned {len(encoded)} sequences for {len(batch)} texts. "
                "Pass a function that encodes each text separately."
            )
        if not start:
            _check_ids(encoded)
        try:
            prompts.extend(np.asarray(ids, dtype=np.int32) for ids in encoded)
        except (TypeError, ValueError, OverflowError):
            raise _no_ids(encoded) from None
    return Tokens.of(prompts)


def _check_ids(encoded: Sequence[Sequence[int]]) -> None:
    """Check only the first ids: a tokenizer that returns ids once keeps returning them."""
    first: object = encoded
    try:
        first = next((ids for ids in encoded if len(ids)), [0])
        ids = np.asarray(first)
    except (TypeError, ValueError):
        raise _no_ids(first) from None
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 2**31:
        raise _no_ids(first)


def _no_ids(given: object) -> ConfigError:
    shown = textwrap.shorten(repr(given), 60, placeholder="...")
    return ConfigError(
        f"The tokenizer returned {shown}. For a list of texts, it must return a list of token ids "
        "per text: integers from 0 to below 2^31."
    )


FOREVER = 2**62  # a window that no schedule exceeds


class PrefixTree(NamedTuple):
    """The prompts as a radix tree by tokens: there is a node wherever prompts diverge or end.

    parent, depth: (nodes,), depth in tokens; roots have depth 0 and are their own parents.
    leaf: (n,), the node where each prompt ends. hits: (n,), tokens shared with earlier prompts.
    """

    parent: Int64s
    depth: Int64s
    leaf: Int64s
    hits: Int64s


def prefix_tree(tokens: Tokens, roots: Int64s | None = None, window: int = FOREVER) -> PrefixTree:
    """Build the tree of all prompts; O(tokens) time, O(prompts) space.

    roots: (n,), which cache each prompt is sent to, counted from 0; None: one for all.
    window: a prefix counts as a hit if one of the `window` prompts before had it.
    """
    if roots is None:
        roots = np.zeros(len(tokens), np.int64)
    return PrefixTree(*_native.prefix_tree(tokens.ids, tokens.offsets, roots, window))


def as_encode(tokenizer: Any) -> Encode:
    """A tokenizer as a function that returns one sequence of token ids per text.

    No library is imported: a tokenizer is known by its methods. No special tokens are added, and
    nothing is cut off or padded. Special tokens that a text names are ordinary characters if the
    tokenizer can take them so.

    tokenizer: such a function; a tokenizer of transformers, fast or slow; a `tokenizers.Tokenizer`;
    or an object with `encode_ordinary` (tiktoken) or `encode`, which take one text.

    Raises ConfigError for anything else.
    """
    if _is_of_tokenizers(backend := getattr(tokenizer, "backend_tokenizer", tokenizer)):
        return partial(_by_tokenizers, _plain(backend))
    if hasattr(tokenizer, "convert_tokens_to_ids") and callable(tokenizer):
        return partial(_by_transformers, tokenizer)
    if callable(tokenizer):
        return tokenizer  # type: ignore[no-any-return]
    for name in () if isinstance(tokenizer, str) else ("encode_ordinary", "encode"):
        if callable(encode := getattr(tokenizer, name, None)):
            return partial(_one_by_one, encode)
    remedy = f" Use load_tokenizer({tokenizer!r})." if isinstance(tokenizer, str) else ""
    raise ConfigError(
        f"tokenizer is {tokenizer!r}; it must be a function from texts to token ids, or a "
        f"tokenizer of transformers, tokenizers or tiktoken.{remedy}"
    )


def _is_of_tokenizers(tokenizer: Any) -> bool:
    return all(hasattr(tokenizer, name) for name in ("encode_batch_fast", "to_str", "token_to_id"))


def _plain(tokenizer: Any) -> Any:
    """A copy that neither cuts off nor pads: the original may be in use elsewhere."""
    copy = type(tokenizer).from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True  # that is: as text
    return copy


def _by_tokenizers(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [each.ids for each in encoded]


def _by_transformers(tokenizer: Any, texts: list[str]) -> Sequence[Sequence[int]]:
    encoded = tokenizer(
        texts,
        add_special_tokens=False,
        padding=False,
        truncation=False,
        split_special_tokens=True,
        return_attention_mask=False,
        verbose=False,
    )
    return encoded["input_ids"]  # type: ignore[no-any-return]


def _one_by_one(encode: Any, texts: list[str]) -> list[list[int]]:
    return [encode(text) for text in texts]


# As byte-pair tokenizers with 100,000 tokens cut a text: words with the character before them,
# numbers of three digits, marks with the line break after them, white space. The lengths are those
# that come nearest to Llama 3's counts on the documents of this project and on 11 tables.
_PIECE = re.compile(
    r" [a-z]{1,9}"  # a word in a sentence
    r"|\b[a-z]{1,8}"  # at the start of a line
    r"|[^\r\n\w]?\b[A-Z][a-z]{1,5}"  # a name
    r"|[^\r\n\w]\b[a-z]{1,4}"  # after a mark
    r"|[^\r\n\w]?\b[A-Z]{1,4}"
    r"|[A-Z]?[a-z]{1,4}|[A-Z]{1,4}"  # the rest of a longer one
    r"|\d{1,3}|[^\W\d_a-zA-Z]{1,2}"
    r"| ?[^\w\s]{1,4}[\r\n]*|\s+|_"
)


class ItemTokens(NamedTuple):
    """prefix: tokens before the fields of every row. items: tokens of each item's line."""

    prefix: Int32s
    items: Tokens

    def put_together(self, sent: Int32s) -> Tokens:
        """Prompts of rows. sent: (n, m), items in the order sent."""
        lengths = self.items.lengths[sent].sum(axis=1) + len(self.prefix)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids = np.empty(offsets[-1], np.int32)
        _native.join(self.prefix, self.items.ids, self.items.offsets, sent, ids)
        return Tokens(ids, offsets)


def tokenize_items(items: Items, encode: Encode, prefix: str) -> ItemTokens:
    """Tokens of "column: value" and the line break after it, by item; copies stay empty."""
    start = tokenize([prefix], encode).ids if prefix else np.empty(0, np.int32)
    return ItemTokens(start, tokenize(items.lines, encode))


def begin_alike(pieces: ItemTokens, same: Int32s) -> Beginnings:
    """The prefixes that items share, in tokens. same: (items,), see Items.

    Sorts the tokens of every item, so it suits only small tables.
    """
    ids, offsets = pieces.items.ids.tolist(), pieces.items.offsets.tolist()
    tokens = [ids[offsets[item] : offsets[item + 1]] for item in same.tolist()]
    order = sorted(range(len(tokens)), key=lambda item: (tokens[item], item))
    shared = np.zeros(len(order), np.int64)
    for place, (before, item) in enumerate(pairwise(order), start=1):
        shared[place] = agreement(tokens[before], tokens[item])
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    return Beginnings(rank, shared, least_table(shared))


class EstimatedTokens:
    """Pieces of words as a stand-in for tokens, for use without a tokenizer.

    English text has about as many pieces as tokens of a common vocabulary: by table 5% fewer to 2%
    more than Llama 3's.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Ids of the pieces of each text; equal pieces have equal ids in all calls."""
        ids = self._ids
        return [
            [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)] for text in texts
        ]
