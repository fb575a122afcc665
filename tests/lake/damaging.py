"""Damage for data files."""

from pathlib import Path

import pyarrow.parquet as pq


def damage(path: Path, group: int, column: str) -> None:
    """Change one bit in the last page of a column of a row group."""
    metadata = pq.read_metadata(path).row_group(group)
    columns = [metadata.column(number) for number in range(metadata.num_columns)]
    [chunk] = [each for each in columns if each.path_in_schema == column]
    first = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    data = bytearray(path.read_bytes())
    data[first + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
