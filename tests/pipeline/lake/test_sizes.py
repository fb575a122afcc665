from penstock.pipeline.lake.manifest import DataFile
from penstock.pipeline.lake.sizes import file_sizes


def sizes(*values: int) -> dict[str, int]:
    return file_sizes(DataFile(path=str(value), rows=1, bytes=value) for value in values)


def test_sizes_are_told_in_percentiles() -> None:
    assert sizes(*range(1, 101)) == {
        "files": 100,
        "bytes": 5050,
        "p10_bytes": 10,
        "p50_bytes": 50,
        "p90_bytes": 90,
        "max_bytes": 100,
    }


def test_one_file_is_every_percentile() -> None:
    assert sizes(7) == {
        "files": 1,
        "bytes": 7,
        "p10_bytes": 7,
        "p50_bytes": 7,
        "p90_bytes": 7,
        "max_bytes": 7,
    }


def test_no_files_have_no_sizes() -> None:
    assert sizes() == {"files": 0}
