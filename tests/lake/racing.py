"""Jobs that work on one table at the same time, as fast as they can: `python racing.py JOB FOLDER`."""

import random
import sys
from pathlib import Path
from uuid import uuid4

from penstock.errors import Conflict
from penstock.lake.maintenance import clean
from penstock.lake.manifest import Change, DataFile, Manifest
from penstock.lake.table import Table

BATCHES = 30
PARTS = 3
"""Into how many files a batch goes."""


def write(table: Table, numbers: list[int]) -> DataFile:
    name = f"{uuid4().hex}.parquet"
    text = " ".join(map(str, numbers))
    table.path.mkdir(parents=True, exist_ok=True)
    (table.path / name).write_text(text)
    return DataFile(path=name, rows=len(numbers), bytes=len(text))


def numbers_in(table: Table, files: list[DataFile]) -> list[int]:
    return [int(word) for file in files for word in table.absolute(file).read_text().split()]


def archive(path: Path) -> int:
    """Append batches until all are there, as one of several who try to."""
    table, own = Table(path), 0
    while (batch := table.manifest().batch) < BATCHES:
        files = [write(table, [batch * PARTS + part]) for part in range(PARTS)]

        def change(manifest: Manifest, batch: int = batch, files: list[DataFile] = files) -> Change | None:
            if manifest.batch != batch:
                return None
            return Change(by="archive", added=files, batch=batch + 1, schema="{}")

        try:
            after = table.commit(change)
        except Conflict:  # they were taken for strays
            continue
        if files[0].path in after.files:
            own += 1
        else:
            for file in files:
                table.absolute(file).unlink(missing_ok=True)
    return own


def compact(path: Path) -> int:
    """Merge files two by two, over and over, as one of several who do."""
    table, dice, merged = Table(path), random.Random(1), 0
    while (manifest := table.manifest()).batch < BATCHES:
        if len(manifest.files) < 2:
            continue
        pair = dice.sample(list(manifest.files.values()), 2)
        paths = {file.path for file in pair}
        try:
            new = write(table, numbers_in(table, pair))
        except FileNotFoundError:  # somebody else merged and cleaned
            continue

        def change(manifest: Manifest, paths: set[str] = paths, new: DataFile = new) -> Change | None:
            return (
                Change(by="compact", added=[new], removed=sorted(paths))
                if paths <= manifest.files.keys()
                else None
            )

        try:
            merged += new.path in table.commit(change).files
        except Conflict:
            continue
    return merged


def tidy(path: Path) -> int:
    """Delete without mercy: also what others are about to commit."""
    table, deleted = Table(path), 0
    while table.manifest().batch < BATCHES:
        deleted += clean(table, "expire", grace_s=0, stray_s=0.3).files
    return deleted


def look(path: Path) -> int:
    """Read the table over and over: each time whole batches from the first on, each number once."""
    table, looks = Table(path), 0
    while True:
        manifest = table.manifest()
        try:
            numbers = numbers_in(table, list(manifest.files.values()))
        except FileNotFoundError:
            assert Table(path).manifest().version > manifest.version, "a live file is gone"
            continue
        assert sorted(numbers) == list(range(manifest.batch * PARTS)), manifest.version
        looks += 1
        if manifest.batch >= BATCHES:
            return looks


if __name__ == "__main__":
    print(
        {"archive": archive, "compact": compact, "tidy": tidy, "look": look}[sys.argv[1]](Path(sys.argv[2]))
    )
