"""The tokenizer of a GGUF file: BPE of bytes with merges, or SentencePiece's with scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.text.tokenizer import Tokenizer

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = tuple(
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}{first}{_LOWER}{last}" for first, last in ("*+", "+*")
)
_GPT_2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
_DIGITS = (r"\p{N}", *_GPT_2)
_LLAMA_3 = (rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",)
_QWEN_2 = (rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_REST}",)
_SLASHED = _REST.replace(r"[\r\n]*", r"[\r\n/]*", 1)
_TEKKEN = (rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_SLASHED}",)
_GPT_4O = (rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}{{1,3}}|{_SLASHED}",)
_SPLITS: Mapping[str, Sequence[str]] = {
    "command-r": _DIGITS,
    "dbrx": _LLAMA_3,
    "deepseek-r1-qwen": _QWEN_2,
    "exaone": _DIGITS,
    "falcon3": _LLAMA_3,
    "gpt-2": _GPT_2,
    "gpt-4o": _GPT_4O,
    "llama-bpe": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama4": _GPT_4O,
    "phi-2": _GPT_2,
    "qwen2": _QWEN_2,
    "refact": _DIGITS,
    "smaug-bpe": _LLAMA_3,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "tekken": _TEKKEN,
}
"""How text is cut before tokens are merged, by the names that files have for it: in pieces that
match one expression after another. They are those of the models' own tokenizer.json."""
_WHOLE_FIRST = {"llama-bpe", "llama-v3", "llama3", "falcon3", "tekken"}
"""Those by which a piece that is a token needs no merges."""
_COMPOSED = {"qwen2", "deepseek-r1-qwen"}
"""Those whose text is brought into Unicode's form C."""
_NORMAL, _UNKNOWN, _CONTROL, _USER = range(1, 5)
"""Kinds of tokens."""
_BLANK = "\u2581"
_SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",  # as files spell it
}


def read_gguf_tokenizer(metadata: Mapping[str, Any], name: str) -> Tokenizer:
    """The tokenizer of a file that says this. Raises ModelError, and UnsupportedNetworkError for a
    kind that is not known."""
    told = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    try:
        return _read(told, name, metadata.get("tokenizer.chat_template"))
    except ModelError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(
            f"The tokenizer in the GGUF file of model '{name}' cannot be read: {error}. Download "
            "it again."
        ) from error


def _read(told: Mapping[str, Any], name: str, template: object) -> Tokenizer:
    kind, tokens = told.get("model"), told["tokens"]
    kinds = told.get("token_type") or [_NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise ValueError("token_type is not a kind for each token")
    special = {
        purpose: tokens[told[f"{said}_token_id"]]
        for purpose, said in _SPECIAL.items()
        if 0 <= told.get(f"{said}_token_id", -1) < len(tokens)
    }
    if kind == "gpt2":
        backend = _byte_level(told, name, tokens)
    elif kind == "llama":
        backend = _sentence_piece(told, tokens, kinds, special.get("unk_token"))
    else:
        raise UnsupportedNetworkError(
            f"Model '{name}' cannot run in relquery's own runtime: the tokenizer in its GGUF file "
            f"is of the kind '{kind}', and gpt2 and llama are read. Pass tokenizer= instead."
        )
    backend.add_tokens(
        [
            AddedToken(token, normalized=False, special=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _USER and token
        ]
    )
    backend.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if token and (kind in (_UNKNOWN, _CONTROL) or token in special.values())
        ]
    )
    is_begun = told.get("add_bos_token", kind == "llama" or told.get("pre") in _WHOLE_FIRST)
    first = [special["bos_token"]] if is_begun and "bos_token" in special else []
    last = [special["eos_token"]] if told.get("add_eos_token") and "eos_token" in special else []
    if first or last:
        backend.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last],
            special_tokens=[(each, backend.token_to_id(each)) for each in {*first, *last}],
        )
    template = template if isinstance(template, str) else ""
    template.encode()  # raises what is told, where it is not UTF-8
    return Tokenizer(backend, special, template)


def _byte_level(told: Mapping[str, Any], name: str, tokens: Sequence[str]) -> Backend:
    """BPE of bytes, each of which is written as a letter."""
    said = told.get("pre", "default")
    if said not in _SPLITS:
        raise UnsupportedNetworkError(
            f"Model '{name}' cannot run in relquery's own runtime: its GGUF file cuts text as "
            f"'{said}', which is not known. Pass tokenizer= with the model's own tokenizer.json."
        )
    merges = [tuple(each.split(" ", 1)) for each in told["merges"]]
    ids = {token: number for number, token in enumerate(tokens)}
    model = models.BPE(vocab=ids, merges=merges, ignore_merges=said in _WHOLE_FIRST)
    backend = Backend(model)
    if said in _COMPOSED:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(each), "isolated") for each in _SPLITS[said]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_piece(
    told: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[int], unknown: str | None
) -> Backend:
    """BPE of characters, whose merges follow from scores: the pair whose token has the highest is
    merged first. Characters that are no tokens become bytes."""
    scores = told["scores"]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [
        (-scores[number], ids[token[:index]], ids[token[index:]], token[:index], token[index:])
        for number, token in enumerate(tokens)
        if kinds[number] in (_NORMAL, _USER)
        for index in range(1, len(token))
        if token[:index] in ids and token[index:] in ids
    ]
    merges.sort()
    model = models.BPE(
        vocab=ids,
        merges=[each[3:] for each in merges],
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = Backend(model)
    has_prefix = told.get("add_space_prefix", True)
    blanks = normalizers.Replace(" ", _BLANK)
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_BLANK), blanks]) if has_prefix else blanks
    )
    ends = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
    )
    return backend
