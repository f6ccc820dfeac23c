"""`fixed`: one column order for all rows, chosen by statistics, and one sort.

Among the columns not yet placed, the next one has the most weight hit per prefix that it splits.
With D distinct prefixes so far and E with the column added, rows - E cells of the column hit, and
E - D more rows miss everything that follows. For independent columns this gives descending weight x
p / (1 - p), where p is the chance of a hit: swapping two neighbours that violate this order always
gains. A column determined by the placed ones splits nothing and comes next immediately.

Columns of one class (functional dependency) hit together. They are ranked as one and kept adjacent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled, go_on
from relquery.table.solvers.segment import Problem, Segment, fill_segment, new_segment

CANDIDATES = 16  # number of classes compared at each place, by their own statistics


class Prefixes(NamedTuple):
    """Rows (positions in a segment) sorted by the columns placed so far.

    run: per row, the number of its distinct prefix; ascending from 0. runs: how many there are.
    seen: scratch per group of the segment, -1 between calls.
    """

    rows: Int64s
    run: Int64s
    runs: int
    seen: Int64s


def fixed(problem: Problem) -> tuple[Int64s, Int32s]:
    """(rows, fields by row id)."""
    rows = problem.items.shape[1]
    segment = new_segment(problem)
    everything = np.arange(rows, dtype=np.int64)
    live = fill_segment(segment, problem, everything, np.empty(0, np.int32))
    order, ranked = sort_by_statistics(segment, problem, everything, live)
    go_on(problem.stopped)
    return order, problem.places[segment.columns[ranked]].T


@compiled
def sort_by_statistics(
    segment: Segment, problem: Problem, rows: Int64s, live: int
) -> tuple[Int64s, Int64s]:
    """Sort some of a segment's rows and rank its live columns: (rows, ranked), as positions.

    At most O(rows x live columns x CANDIDATES); a column costs nothing once no two rows share
    everything before it.
    """
    run = np.zeros(len(rows), np.int64)
    prefixes = Prefixes(rows, run, 1, np.full(segment.first[live], -1, np.int64))
    choices = _rank_alone(segment, problem, prefixes, live)
    done = np.zeros(live, np.bool_)
    ranked = np.empty(live, np.int64)
    placed, head = 0, 0
    while placed < live and not problem.stopped[0]:
        while done[head]:
            head += 1
        best = head
        if prefixes.runs < len(rows):
            best = _best_choice(segment, problem, prefixes, choices, done, head)
        for k in range(best, _class_end(segment, problem, choices, best)):
            done[k] = True
            ranked[placed] = choices[k]
            placed += 1
            if prefixes.runs < len(rows):
                prefixes = _refine(segment, prefixes, choices[k])
    return prefixes.rows, ranked


@compiled
def _rank_alone(segment: Segment, problem: Problem, none: Prefixes, live: int) -> Int64s:
    """Live columns by weight hit per distinct value, as if each class came first.

    Columns of a class are adjacent.
    """
    columns = segment.columns[:live]
    gain, most = np.zeros(len(problem.classes)), np.ones(len(problem.classes))
    for j in range(live):
        if problem.stopped[0]:
            break
        which = problem.classes[columns[j]]
        more, distinct = _gain(segment, problem, none, j)
        gain[which] += more
        most[which] = max(most[which], distinct)
    ranked = np.arange(live)
    for i in range(1, live):
        k = i
        while k > 0:
            a, b = problem.classes[columns[ranked[k]]], problem.classes[columns[ranked[k - 1]]]
            left, right = gain[a] * most[b], gain[b] * most[a]
            if left < right or (left == right and a >= b):
                break
            ranked[k], ranked[k - 1] = ranked[k - 1], ranked[k]
            k -= 1
    return ranked


@compiled
def _class_end(segment: Segment, problem: Problem, choices: Int64s, start: int) -> int:
    end = start + 1
    which = problem.classes[segment.columns[choices[start]]]
    while end < len(choices) and problem.classes[segment.columns[choices[end]]] == which:
        end += 1
    return end


@compiled
def _best_choice(
    segment: Segment,
    problem: Problem,
    prefixes: Prefixes,
    choices: Int64s,
    done: Bools,
    head: int,
) -> int:
    """The position in `choices` where the class that should come next begins."""
    best, best_score, k, compared = head, -1.0, head, 0
    while k < len(choices) and compared < CANDIDATES and not problem.stopped[0]:
        end = _class_end(segment, problem, choices, k)
        if not done[k]:
            compared += 1
            score = _score(segment, problem, prefixes, choices[k:end])
            if score > best_score:
                best, best_score = k, score
        k = end
    return best


@compiled
def _score(segment: Segment, problem: Problem, prefixes: Prefixes, chosen: Int64s) -> float:
    """Weight hit per prefix split if the chosen columns, one class, came next."""
    gain, most = 0.0, prefixes.runs
    for j in chosen:
        more, distinct = _gain(segment, problem, prefixes, j)
        gain += more
        most = max(most, distinct)
    return np.inf if most == prefixes.runs else gain / (most - prefixes.runs)


@compiled
def _gain(segment: Segment, problem: Problem, prefixes: Prefixes, j: int) -> tuple[float, int]:
    """(weight hit, distinct prefixes) if the j-th live column came next."""
    rows, run, _, seen = prefixes
    gain, distinct = 0.0, 0
    for i in range(len(rows)):
        group = segment.group[rows[i], j]
        if seen[group] == run[i]:
            gain += problem.weights[segment.key[group]]
        else:
            seen[group] = run[i]
            distinct += 1
    for row in rows:
        seen[segment.group[row, j]] = -1
    return gain, distinct


@compiled
def _refine(segment: Segment, prefixes: Prefixes, j: int) -> Prefixes:
    """Sort rows by (prefix, value in the j-th live column), which becomes part of the prefix."""
    rows, run, _, seen = prefixes
    value = segment.group[rows, j].astype(np.int64)
    value -= value.min()
    order = _counting_sort(run, _counting_sort(value, np.arange(len(rows))))
    new_run = np.zeros_like(run)
    for i in range(1, len(rows)):
        here, before = order[i], order[i - 1]
        differs = run[here] != run[before] or value[here] != value[before]
        new_run[i] = new_run[i - 1] + differs
    return Prefixes(rows[order], new_run, new_run[-1] + 1, seen)


@compiled
def _counting_sort(keys: Int64s, order: Int64s) -> Int64s:
    """`order`, sorted stably by `keys[order]`; keys count from 0."""
    slot = np.zeros(keys.max() + 2, np.int64)
    for key in keys:
        slot[key + 1] += 1
    for s in range(1, len(slot)):
        slot[s] += slot[s - 1]
    result = np.empty_like(order)
    for i in order:
        result[slot[keys[i]]] = i
        slot[keys[i]] += 1
    return result
