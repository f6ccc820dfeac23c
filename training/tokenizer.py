"""The demo model's tokenizer: byte-level BPE on the generator's own text.

It is lossless on any text. A newline is a separate token, so text may be cut after it. Digits and
quote marks are too, so a copied value has the same tokens in the answer as in the JSON.
"""

from __future__ import annotations

from itertools import islice
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.lessons.lessons import END, ROLES, Mix, lessons

VOCABULARY = 3072  # enough for nearly every word of the generator to be one token
TEXTS = 20_000
TEXT_MIX = Mix((0, 6), 0.05, 0.50, 1.0, 10, (2, 3, 4, 2))
PAD, PAD_ID = "<|pad|>", 0
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Words include their leading space; digits, quotes and newlines are separate.
SPLIT_PATTERN = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?"[,:]?| ?[^\s\p{L}\p{N}"]+|\n|[^\S\n]+(?!\S)|\s"""
)


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, trained on lessons with all the fields."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    special = [PAD, END, *ROLES]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    drawn = islice(lessons(Random(f"{seed}:tokenizer"), TEXT_MIX), TEXTS)
    core.train_from_iterator(("".join(text for text, *_ in lesson) for lesson in drawn), trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
