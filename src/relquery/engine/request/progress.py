"""Which tokens of a request are computed next, and which of its blocks they fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relquery.engine.request.request import Request


def servable(request: Request, index: int, block_size: int) -> int:
    """Leading blocks of a piece that a cache may serve: the last token is always computed."""
    if request.pieces[index].closed:
        return request.named_blocks(index, block_size)
    return (request.size(index) - 1) // block_size


def spread(
    request: Request, tokens: int, done: Sequence[int] | None = None
) -> Iterator[tuple[int, int, int]]:
    """(piece, start, stop) of the next tokens to compute, in document order.

    done: tokens of each piece that need not be computed; by default those already computed.
    """
    if len(request.pieces) == 1:
        start = request.pieces[0].done if done is None else done[0]
        stop = min(start + tokens, request.length)
        if stop > start:
            yield 0, start, stop
        return
    for index, piece in enumerate(request.pieces):
        start = piece.done if done is None else done[index]
        stop = min(start + tokens, request.size(index))
        if stop > start:
            yield index, start, stop
            tokens -= stop - start


def filled(
    request: Request, index: int, start: int, stop: int, block_size: int, kept: int | None = None
) -> range:
    """Named blocks of a piece that are full once start..stop are computed; kept: see Work."""
    whole = request.pieces[index].closed and stop == request.size(index)
    end = -(-stop // block_size) if whole else stop // block_size
    return range(start // block_size, end if kept is None else min(end, kept))
