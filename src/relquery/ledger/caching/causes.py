"""Why a prompt read less from a provider's cache than it could have, and what to do about it."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """Each with what it means, and the remedy."""

    CONCURRENT = (
        "concurrent first writes",
        "It was sent before any request with the same prefix was answered.",
        "Lower --concurrency, or ask more groups of rows in one query: first requests of other "
        "groups are then sent in between.",
    )
    EXPIRED = (
        "expired",
        "More time than an entry lives had passed since the last request with the same prefix.",
        "Raise --concurrency and --rpm as far as the provider allows. Give --rpm, so that entries "
        "of an hour are chosen where the provider has them and they cost less.",
    )
    EVICTED = (
        "evicted",
        "The prefix was written and had not expired, as far as the provider says how long it keeps "
        "one. It dropped it, or another of its machines served the request; it does not say which.",
        "Send less at once (--rpm), so that one machine serves a group of rows, and do not share "
        "the account with other programs meanwhile.",
    )
    UNWRITTEN = (
        "not written",
        "By its replies, the provider stored nothing for the requests with the same prefix that "
        "came before.",
        "Check that the server takes marks of prefixes; another server in between may drop them.",
    )
    FAILED = (
        "first request failed",
        "The request that was to write the prefix had no answer, and no other came before.",
        "Run the query again with the same ledger; see `relquery ledger --failed` for the error.",
    )
    MERGED = (
        "boundary merge",
        "It read all but the last step of the prefix: tokens at the border merge with what follows "
        "them, so the shared prefix is somewhat shorter than planned.",
        "None is needed. A line break at the end of the shared text avoids it.",
    )
    BELOW = (
        "below the minimum",
        "What it shares with other prompts is shorter than the shortest prefix that is cached.",
        "Share more: a longer instruction with examples, or text that several rows have, sent "
        "first. Or take a model with a lower minimum; see `relquery prices`.",
    )
    PINNED = (
        "order pinned",
        "It shares less than the minimum with its fields in this order, which was given. With "
        "another field first, it would share enough.",
        "Leave out --order original and fixed (order= in Python), and give fields as arguments in "
        "place of naming them in the prompt's text. If a guard pinned the order, answers depend on "
        "it.",
    )
    UNREPORTED = (
        "not reported",
        "The provider does not say how many tokens it read from its cache.",
        "Look at the provider's bill; the cost in the ledger counts nothing as cached.",
    )
    UNKNOWN = (
        "cannot be told",
        "The ledger does not have the times that would tell: the request that writes the prefix "
        "is not in it, or when one of the two was sent.",
        "Keep all processes of a query on one ledger.",
    )
    LITTLE = (
        "not marked",
        "Marks would have saved less than one percent of the call's input.",
        "None is needed.",
    )
    ALONE = (
        "only prompt",
        "Nothing was asked together with it that could share its prefix.",
        "Ask about more rows in one query.",
    )
    UNPRICED = (
        "no price known",
        "Without a price nothing is planned, since nobody knows what is cached.",
        "Give one: `relquery prices --update FILE`.",
    )
    BATCH = (
        "batch",
        "Requests of a batch run together, and nothing is expected to be read.",
        "None is needed: batches cost half.",
    )

    def __init__(self, title: str, meaning: str, remedy: str) -> None:
        self.title, self.meaning, self.remedy = title, meaning, remedy


UNEXPECTED = {
    "below": Cause.BELOW,
    "pinned": Cause.PINNED,
    "little": Cause.LITTLE,
    "alone": Cause.ALONE,
    "unpriced": Cause.UNPRICED,
    "batch": Cause.BATCH,
}
"""Why nothing was expected of a prompt, by what the ledger says."""
