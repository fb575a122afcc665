"""Jobs of several processes on one table: nothing is lost or there twice, and readers see whole batches."""

import sys
from pathlib import Path
from subprocess import PIPE, Popen

from penstock.lake.maintenance import clean
from penstock.lake.table import Table
from tests.lake import racing
from tests.lake.racing import BATCHES, PARTS, numbers_in

JOBS = ("archive", "archive", "compact", "compact", "tidy", "look")


def test_jobs_on_one_table_do_not_disturb_one_another(tmp_path: Path) -> None:
    path = tmp_path / "table"
    counts = run_all(path)
    assert counts[0] + counts[1] == BATCHES
    assert counts[-1] > 0
    table = Table(path)
    manifest = table.manifest()
    assert manifest.batch == BATCHES
    assert sorted(numbers_in(table, list(manifest.files.values()))) == list(range(BATCHES * PARTS))
    clean(table, "expire", grace_s=0, stray_s=0)
    left = {path.name for path in table.path.iterdir()} - {"_manifest"}
    assert left == set(table.manifest().files)


def run_all(path: Path) -> list[int]:
    """Run all jobs side by side, and give what each counted."""
    running = [
        Popen([sys.executable, racing.__file__, job, str(path)], stdout=PIPE, stderr=PIPE, text=True)
        for job in JOBS
    ]
    try:
        ended = [process.communicate(timeout=50) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert [errors for _, errors in ended if errors] == []
    return [int(text) for text, _ in ended]
