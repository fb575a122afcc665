"""Read-only web dashboard over a server's HTTP API.

It is an ordinary client and may run on another machine. It reaches a server through `penstock.client` and a
lake through `penstock.lake`. Streamlit and Altair come with the extra `dashboard` and are imported in this
package only.
"""
