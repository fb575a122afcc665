"""Settings of JVMs that live for a minute: less compilation, and garbage collection by one thread."""

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUICK_DRIVER = {"spark.driver.extraJavaOptions": QUICK, "spark.driver.memory": "512m"}
"""Settings of Spark for a driver with a small heap."""
