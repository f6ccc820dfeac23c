"""The order in which distinct inputs are sent."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from relquery.sql.binder.call import Task
from relquery.sql.inputs.cells import Cells
from relquery.sql.inputs.inputs import Inputs, Question

ROWS = 400


def inputs(query: tuple[str | int, ...] = ("Good?",)) -> Inputs:
    """City and state, which the city decides, and a number."""
    city = [f"city {number % 20}" for number in range(ROWS)]
    table = pa.table(
        {
            "city": pa.array(city, pa.large_string()),
            "state": pa.array([f"state {int(one[5:]) % 4}" for one in city], pa.large_string()),
            "number": pa.array(list(map(str, range(ROWS))), pa.large_string()),
        }
    )
    names = tuple(table.column_names)
    cells = Cells(names, ("string",) * 3, np.arange(ROWS), lambda rows: table.take(pa.array(rows)))
    return Inputs.of(Question("", Task(query), ROWS, cells))


def test_rows_with_one_text_before_their_data_are_sent_together() -> None:
    found = inputs(("Is ", 1, " large?"))
    schedule = found.schedule(np.arange(ROWS), "tree")
    assert schedule is not None
    states = found.codes[schedule.rows, 1]
    assert (np.diff(states) != 0).sum() == 3
    assert sorted(schedule.rows.tolist()) == list(range(ROWS))
    assert set(schedule.fields.ravel().tolist()) == {0, 2}


def test_a_text_that_has_all_fields_is_sent_in_its_order() -> None:
    found = inputs((1, " ", 0, " ", 2))
    schedule = found.schedule(np.arange(ROWS), "tree")
    assert schedule is not None
    codes = found.codes[schedule.rows][:, [1, 0, 2]].tolist()
    assert codes == sorted(codes)
    assert schedule.fields.shape == (ROWS, 0)


def test_a_message_names_the_cells_of_an_input() -> None:
    assert inputs((1, "?")).cells(1) == {"city": "city 1", "state": "state 1", "number": "1"}
