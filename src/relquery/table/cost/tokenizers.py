"""Tokenizers of several libraries as functions from texts to token ids.

None of these libraries is imported: a tokenizer is known by its methods. No special tokens are
added, and nothing is cut off or padded. Special tokens that a text names are ordinary characters
if the tokenizer can take them so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from relquery.errors import ConfigError
from relquery.table.cost.tokens import Encode


def as_encode(tokenizer: Any) -> Encode:
    """A tokenizer as a function that returns one sequence of token ids per text.

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
        if callable(one := getattr(tokenizer, name, None)):
            return partial(_one_by_one, one)
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
