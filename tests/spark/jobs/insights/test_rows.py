"""The tables are what their page says."""

import re
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.jobs.insights.rows import TABLES, table_schema

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "watch-with-insights.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\w<>,]+) \|", re.MULTILINE)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_names_the_columns_of_a_table_with_their_types_in_their_order(name: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {name}\n")[1].split("\n#")[0]
    told = [*ROW.findall(section)]
    columns = {field.name: field.dataType.simpleString() for field in from_arrow_schema(table_schema(name))}
    assert list(columns.items()) == [
        ("window_start", "timestamp"),
        ("window_end", "timestamp"),
        *told,
        ("grain", "string"),
        ("date", "date"),
    ]
