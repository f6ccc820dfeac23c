"""Tables show floats with six digits and lose no whole number or cent; what is fetched is exact."""

from __future__ import annotations

import math

from relquery.cli.sql.output import Format, in_form
from relquery.cli.terminal import cell
from relquery.connection import Connection
from relquery.sql.render import rounded, short

SCORE = 0.40824829046386296


def test_a_float_has_six_digits_but_keeps_whole_numbers_and_cents() -> None:
    for value, shown in [
        (SCORE, "0.408248"), (1 / 3e7, "3.33333e-08"), (-2 / 3, "-0.666667"), (4.0, "4"),
        (12.345678, "12.3457"), (250000.75, "250000.75"), (1234567.891, "1234567.89"),
        (123456789012.25, "123456789012.25"), (1e300, "1e+300"), (math.inf, "inf"),
        (math.nan, "nan"), (0.0, "0"),
    ]:  # fmt: skip
        assert short(value) == shown


def test_floats_inside_lists_and_structs_are_rounded_too() -> None:
    hits = [{"text": "0.40824829046386296", "score": SCORE}, None]
    assert rounded(hits) == [{"text": "0.40824829046386296", "score": 0.408248}, None]
    assert rounded((SCORE, 7)) == (0.408248, 7)


def test_tables_round_and_files_do_not(con: Connection) -> None:
    result = con.sql(f"SELECT {SCORE}::DOUBLE AS score, [{SCORE}::DOUBLE] AS scores")
    assert "0.408248 | [0.408248]" in repr(result)
    html = result._repr_html_()
    assert f'title="{SCORE}">0.408248<' in html
    assert f'title="[{SCORE}]">[0.408248]<' in html
    row = result.fetchall()[0]
    assert [cell(one).plain for one in row] == ["0.408248", "[0.408248]"]
    assert row == (SCORE, [SCORE])
    for form in (Format.CSV, Format.JSON):
        assert in_form(result, form).count(str(SCORE)) == 2
