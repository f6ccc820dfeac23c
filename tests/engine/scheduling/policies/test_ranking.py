"""A ranking is sorted by its keys, however they change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.scheduling.policies.fairness import Ranking

NUMBER = st.integers(0, 6)
STEPS = st.lists(
    st.tuples(st.just("set"), NUMBER, st.integers(0, 4))
    | st.tuples(st.just("discard"), NUMBER, st.just(0))
    | st.tuples(st.just("take"), st.just(0), st.integers(0, 4))
)


@given(STEPS)
def test_it_is_a_dictionary_in_the_order_of_its_values(steps: list[tuple[str, int, int]]) -> None:
    ranking, model = Ranking(), dict[int, int]()
    for step, number, key in steps:
        if step == "set":
            ranking.set(number, float(key))
            model[number] = key
        elif step == "discard":
            ranking.discard(number)
            model.pop(number, None)
        else:
            taken = [n for n in sorted(model, key=lambda n: (model[n], n)) if model[n] <= key]
            assert ranking.take_until(float(key)) == taken
            for gone in taken:
                del model[gone]
        expected = sorted(model, key=lambda n: (model[n], n))
        assert list(ranking) == expected
        assert len(ranking) == len(expected)


def test_a_later_part_of_the_key_settles_ties() -> None:
    ranking = Ranking()
    ranking.set(0, 1.0, 9.0)
    ranking.set(1, 1.0, 3.0)
    assert list(ranking) == [1, 0]
    assert ranking.take_until(1.0) == [1, 0]
