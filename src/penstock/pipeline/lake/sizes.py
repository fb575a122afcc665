"""How large the files of a table are: what says whether it should be compacted."""

from collections.abc import Iterable

from penstock.pipeline.lake.manifest import DataFile

PERCENTILES = (10, 50, 90)


def file_sizes(files: Iterable[DataFile]) -> dict[str, int]:
    """How many files there are, their bytes, and percentiles of these; without files only the number."""
    sizes = sorted(file.bytes for file in files)
    if not sizes:
        return {"files": 0}
    known = {f"p{percent}_bytes": percentile(sizes, percent) for percent in PERCENTILES}
    return {"files": len(sizes), "bytes": sum(sizes), **known, "max_bytes": sizes[-1]}


def percentile(ordered: list[int], percent: int) -> int:
    """The least value that so many per cent of the values are not above."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]
