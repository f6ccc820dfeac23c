"""Prompts of a call as blocks: a span is a block, tokenised by itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from relquery.prompt import Prompt, Reuse, Role, Span
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.tokens import Encode, tokenize

Text = tuple[Role, bool, str]
"""What makes two blocks equal: the role, whether a message begins, the text."""


class NotPlain(ValueError):  # noqa: N818 - no failure: such prompts have no plan
    """A prompt has spans that no provider takes, such as tokens or independent spans."""


def blocks_of(prompts: Iterable[Prompt], encode: Encode) -> tuple[Blocks, list[Text]]:
    """(prompts as blocks, what each block is, by its number).

    Shorter prompts end with an empty block of no tokens. Raises NotPlain.
    """
    numbers: dict[Text, int] = {(Role.NONE, False, ""): 0}
    sent = [
        [numbers.setdefault(_text(span), len(numbers)) for span in prompt] for prompt in prompts
    ]
    width = max(map(len, sent), default=0)
    flat = chain.from_iterable([*row, *[0] * (width - len(row))] for row in sent)
    ids = np.fromiter(flat, np.int32, len(sent) * width).reshape(len(sent), width)
    texts = list(numbers)
    sizes = tokenize([text for _, _, text in texts], encode).lengths.astype(np.int64)
    sizes[0] = 0
    return Blocks(ids, sizes), texts


def _text(span: Span) -> Text:
    content = span.content
    if not isinstance(content, str) or span.reuse is not Reuse.PREFIX or span.position is not None:
        raise NotPlain
    return span.role, span.begins, content
