"""How to get a lake: commands to copy."""

import shlex
from pathlib import Path

import streamlit as st

from penstock.dashboard.lakes.audits import REPORT
from penstock.dashboard.source import Source

FOLDER = Path("lake")
"""What a lake is called in commands as long as there is none."""


def commands_for(source: Source) -> str:
    """What to type for an archive and its dashboard."""
    lake = shlex.quote(str(source.lake or FOLDER))
    server = f"--address {shlex.quote(source.address)}"
    if source.user:
        server += f" --user {shlex.quote(source.user)} --password-file FILE"
    return "\n".join(
        (
            "pip install '.[spark]'  # in a checkout of Penstock",
            f"penstock pipeline archive --lake {lake} {server} --follow",
            f"penstock pipeline insights --lake {lake} {server} --follow",
            f"penstock dashboard --lake {lake} {server}",
        )
    )


def audit_command(lake: Path, address: str) -> str:
    """What to type to audit a lake and keep the report where the dashboard finds it."""
    folder = shlex.quote(str(lake))
    report = shlex.quote(str(lake / REPORT))
    return f"penstock pipeline audit --lake {folder} --address {shlex.quote(address)} -o json > {report}"


def show_beginning(source: Source) -> None:
    """Say what a lake is good for, and how to make one."""
    with st.container(key="lake-beginning"):
        if source.lake is None:
            st.info("The dashboard was started without `--lake`.", icon=":material/database_off:")
        st.write(
            "A lake keeps what the log has for as long as you want, in Parquet files that Spark, DuckDB and "
            "pandas read. Archive into one, and start the dashboard with it:"
        )
        st.code(commands_for(source), language="bash")


def show_memory_only() -> None:
    """Say that there is nothing to be archived."""
    with st.container(key="lake-memory-only"):
        st.warning(
            "This server has no data directory, so it has no log that could be archived. Start it with "
            "`penstock serve --data-dir data`.",
            icon=":material/memory:",
        )
