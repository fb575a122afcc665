"""The jobs run on a real cluster as they do here: a master, two workers, and spark-submit."""

from pathlib import Path

import msgspec
import pytest

from tests.spark.clusters import running_cluster
from tests.spark.servers import LogServer

ROWS = 3_000


@pytest.mark.timeout(600)
def test_archive_and_audit_run_on_a_cluster_through_spark_submit(
    lake_server: LogServer, tmp_path: Path
) -> None:
    lake_server.publish_numbers([f"yard/{number}" for number in range(20)], ROWS)
    lake = ["--lake", str(tmp_path / "lake"), "--address", lake_server.address, "-o", "json"]
    with running_cluster(tmp_path) as cluster:
        archived = cluster.submit("pipeline", "archive", *lake)
        assert archived.returncode == 0, archived.stderr
        assert msgspec.json.decode(archived.stdout)["facts"]["rows"] == ROWS
        audited = cluster.submit("pipeline", "audit", *lake)
        assert audited.returncode == 0, audited.stderr
        report = msgspec.json.decode(audited.stdout)
        assert (report["facts"]["rows"], report["facts"]["compared"]["rows"]) == (ROWS, ROWS)
        refused = cluster.submit("pipeline", "archive", "--lake", "s3://bucket/lake")
        assert refused.returncode == 1
        assert "error: s3://bucket/lake: a lake is a directory" in refused.stdout + refused.stderr
        assert all(count >= 1 for count in cluster.executors())
