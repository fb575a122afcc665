"""Benchmark lab: Penstock beside its peers, with the pipeline beside Spark. See README.md; not shipped."""
