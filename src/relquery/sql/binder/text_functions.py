"""Functions for one task each: sentiment, translation, summary, and personal data.

AI_SENTIMENT(review)                    'positive', 'negative', 'neutral' or 'mixed'
AI_SENTIMENT(review, ['price'])         STRUCT(overall VARCHAR, price VARCHAR)
AI_TRANSLATE(review, 'de', 'en')        the text in English
AI_SUMMARIZE(review [, 30])             a summary [of at most 30 words]
AI_REDACT(review [, ['NAME']])          the text with [NAME] in place of names
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relquery.errors import QueryError
from relquery.pii.patterns import KINDS, OF_MODELS
from relquery.sql.binder import llm_functions
from relquery.sql.binder.arguments import MISSING, LlmFunction, PromptTemplate, literal_of
from relquery.sql.binder.llm_functions import Binder, ask_for_labels, typed
from relquery.sql.binder.prompts import set_prompt
from relquery.sql.parser.tree import Expression
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output, StructField, StructOf

_FEELINGS = ("positive", "negative", "neutral", "mixed")
_LANGUAGES = {
    "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi",
    "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def sentiment(given: LlmFunction) -> Expression:
    """AI_SENTIMENT(field [, ['aspect', ...]]): how a text feels, and about each of some aspects."""
    aspects = given.take(tuple)
    if aspects is not None:
        given.options.setdefault("labels", aspects)
    names, sampling = given.labels(), replace(given.sampling(), labels=())
    if len(given.nodes) > 1 and any(isinstance(literal_of(node), str) for node in given.nodes):
        raise QueryError(
            f"{given.written} has a text that is no column. Aspects are a list, and words of your "
            "own an instruction: AI_SENTIMENT(column, ['price'], instruction := '...')."
        )
    if names is None:
        _ask("What is the sentiment of the text?", given)
        ask_for_labels(_FEELINGS, given)
        return given.call(replace(sampling, labels=_FEELINGS))
    one_of = Leaf("VARCHAR", (*_FEELINGS, "unknown"))
    parts = [StructField("overall", Leaf("VARCHAR", _FEELINGS), required=True)]
    parts += [StructField(name, one_of, required=True) for name in names]
    _ask(
        "What is the sentiment of the text, overall and about each of these aspects? It is unknown "
        f"about an aspect that the text does not mention. Aspects: {', '.join(names)}.",
        given,
    )
    return typed(Output(StructOf(tuple(parts))), sampling, given)


def translate(given: LlmFunction) -> Expression:
    """AI_TRANSLATE(field, 'from', 'to') or (field, 'to'): a text in another language.

    A language is a code or a name; '' for the text's own, whatever that is.
    """
    languages = [literal_of(node) for node in given.nodes[1:]]
    *before, target = languages or [None]
    if (
        len(before) > 1
        or not target
        or not all(isinstance(language, str) for language in languages)
    ):
        raise QueryError(
            f"{given.written} needs a text, its language and the one to translate it to, both as "
            "texts: AI_TRANSLATE(column, 'de', 'en'). '' finds the language of each text."
        )
    del given.nodes[1:]
    source = f" from {_language(before[0])}" if before and before[0] else ""
    _ask(f"Translate the text{source} to {_language(target)}.", given)
    return given.call(replace(given.sampling(), labels=()))


def _language(written: str) -> str:
    return _LANGUAGES.get(written.lower(), written)


def summarize_text(given: LlmFunction) -> Expression:
    """AI_SUMMARIZE(field, ... [, most words]): a summary of a row."""
    words = literal_of(given.nodes[-1]) if len(given.nodes) > 1 else MISSING
    is_count = isinstance(words, int) and not isinstance(words, bool)
    if is_count:
        given.nodes.pop()
    limit = f" Use at most {words} words." if is_count and words else ""
    _ask(f"Summarize the text.{limit}", given)
    return given.call(replace(given.sampling(), labels=()))


_ABOUT = {
    "NAME": "names of persons",
    "ADDRESS": "postal addresses",
    "PHONE_NUMBER": "phone and fax numbers",
    "PAYMENT_CARD_DATA": "numbers, dates and codes of cards",
    "BANK_ACCOUNT": "account numbers",
    "NATIONAL_ID": "numbers of identity cards and social security",
    "AGE": "ages of persons",
    "GENDER": "words that say the gender of a person",
}


def redact(given: LlmFunction) -> Expression:
    """AI_REDACT(field [, ['KIND', ...]]): a text with [KIND] in place of personal data.

    What rules find is replaced before the text is sent. The model names the rest, which is looked
    for in the text; so nothing else of it changes.
    """
    listed = given.take(tuple)
    if listed is None:
        listed = given.options.pop("labels", None)
    kinds = OF_MODELS if listed is None else given.kinds(listed, OF_MODELS)
    if len(given.nodes) != 1 or isinstance(literal_of(given.nodes[0]), PromptTemplate) or not kinds:
        raise QueryError(
            f"{given.written} needs one text, and may have a list of kinds after it: "
            f"AI_REDACT(column, ['NAME', 'EMAIL']). Kinds: {', '.join(OF_MODELS)}."
        )
    output = personal_data(kinds)
    meant = "; ".join(f"{kind}: {_ABOUT[kind]}" for kind in kinds if kind in _ABOUT)
    _ask(
        "List the personal data in the text, each part as it is written there, with its category. "
        f"What is in brackets has been replaced already.{meant and f' {meant}.'}",
        given,
    )
    sampling, wanted = given.sampling(), tuple(kind for kind in KINDS if kind in kinds)
    return typed(output, sampling, given, kind="redact", redact=wanted)


def personal_data(kinds: Sequence[str]) -> Output:
    """The type of what a model finds in a text: parts of it, and their kinds."""
    text = StructField("text", Leaf("VARCHAR"), required=True)
    category = StructField("category", Leaf("VARCHAR", tuple(kinds)), required=True)
    return Output(ListOf(StructOf((text, category))))


def kinds_in(output: Output) -> tuple[str, ...]:
    """The kinds of such a type."""
    match output.shape:
        case ListOf(item=StructOf(parts=(_, StructField(shape=Leaf(values=kinds))))):
            return kinds
    raise AssertionError(output)


def _ask(instruction: str, given: LlmFunction) -> None:
    """Set the prompt. The option `instruction` says it in other words."""
    if not given.nodes:
        name = given.name.upper()
        raise QueryError(f"{given.written} has no text. Give a column: {name}(column).")
    set_prompt(given.option("instruction", instruction), given)


FUNCTIONS: dict[str, tuple[Binder, tuple[str, ...]]] = llm_functions.FUNCTIONS | {
    "ai_sentiment": (sentiment, ("labels", "instruction")),
    "ai_translate": (translate, ("instruction",)),
    "ai_summarize": (summarize_text, ("instruction",)),
    "ai_redact": (redact, ("labels", "instruction")),
}
"""What makes the value of each function, and the options that it has beside those of all."""
