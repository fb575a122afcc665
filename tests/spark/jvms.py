"""Settings of JVMs that live for a minute: less compilation, one thread for garbage, an archive of classes.

Half of the work of such a JVM is to load and verify Spark's classes. `make test` has one JVM do it ahead, in
`tests/spark/typical.py`, and archive them for all others, which map the archive into memory. Without an
archive, or with that of another Java, they only take longer.
"""

import sys
from pathlib import Path

ARCHIVES = Path(sys.prefix) / ".classes"
JAVA, SPARK = ARCHIVES / "java.jsa", ARCHIVES / "spark.jsa"
"""Java's own classes, as not every Java comes with such an archive; on top of it, Spark's."""
PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
PLAIN_DRIVER = {"spark.driver.extraJavaOptions": PLAIN, "spark.driver.memory": "512m"}
"""Settings for a JVM that is not the one of most tests."""
QUICK = f"{PLAIN} -XX:SharedArchiveFile={JAVA}:{SPARK} -Xlog:disable" if SPARK.exists() else PLAIN
QUICK_DRIVER = {**PLAIN_DRIVER, "spark.driver.extraJavaOptions": QUICK}
"""Settings of Spark for a driver with a small heap."""
