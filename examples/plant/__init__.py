"""Example: a plant with four doors, a lake and a proof. `penstock demo` shows it."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC may log to stderr when Spark's JVM is forked
