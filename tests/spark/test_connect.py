"""The connector works for a client of Spark Connect too: it runs where Spark does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.clusters import daemon, environment, wait_for
from tests.spark.jvms import QUICK_DRIVER
from tests.spark.servers import LogServer

pytestmark = [
    pytest.mark.skipif(find_spec("grpc_status") is None, reason="needs pyspark[connect]"),
    pytest.mark.timeout(400),
]

CLIENT = """
import json, sys
sys.modules.update(dict.fromkeys(["penstock", "pyspark_penstock"]))  # a client need not have them
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

remote, address, folder = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
wanted = {"address": address, "filter": "dock/#"}
table = spark.read.format("penstock").options(**wanted).load()
told = {"read": table.count()}
table.selectExpr("concat('pier/', topic) AS topic", "payload").write.format("penstock").mode("append").option(
    "address", address
).save()
query = (
    spark.readStream.format("penstock").options(**wanted).load()
    .selectExpr("concat('quay/', topic) AS topic", "payload")
    .writeStream.format("penstock").option("address", address)
    .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
try:
    spark.read.format("penstock").option("filtre", "x").load().schema
except PySparkException as error:
    told["refused"] = str(error)
print(json.dumps(told))
"""


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect, and where it is."""
    confs = {
        "spark.connect.grpc.binding.port": "0",
        **QUICK_DRIVER,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    flags = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
    program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with daemon(folder, "connect", ["spark-submit", "--master", "local[1]", *flags, *program]) as log:
        yield f"sc://127.0.0.1:{wait_for(log, r'Connect server started at: .*:([1-9][0-9]*)')}"


def test_topics_are_read_and_written_by_a_client_of_spark_connect(
    lake_server: LogServer, tmp_path: Path
) -> None:
    lake_server.publish_numbers(["dock/crane", "dock/ship"], 40)
    with connect_server(tmp_path) as remote:
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, remote, lake_server.address, str(tmp_path)],
            capture_output=True,
            text=True,
            env=environment(tmp_path),
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["read"] == 40
    assert "there is no option filtre" in told["refused"]
    with lake_server.client() as client:
        for topic in ("pier/dock/crane", "quay/dock/ship"):
            payloads = [message.data["number"] for message in client.messages(topic, last=100).messages]
            assert len(payloads) == len(set(payloads)) == 20
