"""Charts: constant specifications, and their data."""

from datetime import UTC, datetime, timedelta

from penstock.dashboard.charts import bar_spec, line_data, line_spec
from penstock.dashboard.poller import Point

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TIMES = [NOON + timedelta(seconds=second) for second in range(3)]


def test_a_chart_of_lines_has_a_column_for_each_line_and_marks_restarts() -> None:
    lines = {
        "a.b/c[0]": [Point(time, number) for time, number in zip(TIMES, (1.0, None, 3.0), strict=True)],
        "it's": [Point(time, 0.0) for time in TIMES],
    }
    data = line_data(lines, [TIMES[1]])
    assert data == {
        "time": TIMES,
        "c0": [1.0, None, 3.0],
        "c1": [0.0, 0.0, 0.0],
        "restart": [False, True, False],
    }


def test_names_are_neither_paths_nor_break_out_of_quotes() -> None:
    spec = line_spec(("a.b/c[0]", "it's \"a\n\\ \u2028"), ("#111111", "#222222"))
    legend = spec["layer"][0]["encoding"]["color"]["legend"]
    said = r"""["a.b/c[0]", "it's \"a\n\\ \u2028"]"""
    assert legend["labelExpr"] == f"{said}[toNumber(slice(datum.label, 1))]"
    assert spec["layer"][0]["transform"][0]["fold"] == ["c0", "c1"]


def test_a_specification_has_no_data_and_is_constant() -> None:
    first, again = (line_spec(("one",), ("#111111",)) for _ in range(2))
    assert first == again
    assert "data" not in first and all("data" not in layer for layer in first["layer"])
    bars = bar_spec(("one", "two"), ("#111111", "#222222"), "ms", 100)
    assert "data" not in bars and bars["height"] == 100


def test_a_chart_without_lines_is_empty_and_no_error() -> None:
    assert line_data({}, []) == {"time": [], "restart": []}
    assert line_spec((), ())["layer"]


def test_an_axis_of_counts_has_whole_numbers_only() -> None:
    axes = [
        line_spec(("one",), ("#111111",), are_counts=are_counts)["layer"][0]["encoding"]["y"]["axis"]
        for are_counts in (True, False)
    ]
    assert [axis.get("tickMinStep") for axis in axes] == [1, None]
