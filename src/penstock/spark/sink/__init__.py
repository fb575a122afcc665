"""Write side of the connector: exactly-once publishing of DataFrames through stages."""
