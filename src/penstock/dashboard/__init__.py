"""A dashboard over a server's HTTP API, read-only: pages that show live what the server reports.

It is a client like any other: it may run on another machine. It reaches a server through `penstock.client`
and a lake through `penstock.pipeline.lake`. Streamlit, Altair and what they need come with the extra
`dashboard`, and are imported here and nowhere else.
"""
