"""`penstock log verify`: read everything, and tell what is damaged."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import typer

from penstock.cli.log.endings import counted
from penstock.cli.log.findings import Finding, Remedy, tidy
from penstock.cli.log.opened import Directory, opened
from penstock.cli.output import Output, OutputOption
from penstock.cli.progress import bar

if TYPE_CHECKING:
    from penstock.cli.log.checking import Check
    from penstock.cli.log.snapshot import Snapshot


def verify(directory: Directory, *, output: OutputOption = Output.TEXT) -> None:
    """Read everything, check every checksum and whether all that is stored agrees.

    Ends with 1 when something is damaged. What the server had given up already when it last started is told,
    and is no reason to do so.
    """
    with opened(directory) as snapshot:
        check, findings = _check(snapshot)
        if findings and snapshot.is_served:  # a server moves things while we look: what is damaged stays so
            snapshot.look()
            check, again = _check(snapshot)
            findings = [each for each in again if each in findings]
        known = _known_among(findings, snapshot)
        findings = [each for each in findings if each not in known]
        if output is Output.JSON:
            print(_as_json(check, findings, known))
        else:
            _print(check, findings, known)
        if findings:
            raise typer.Exit(1)


def _check(snapshot: "Snapshot") -> tuple["Check", list[Finding]]:
    from penstock.cli.log.checking import Check, check_files  # noqa: PLC0415 - Arrow takes a while

    total = sum(piece.bytes for piece in snapshot.pieces())
    with bar("reading", total) as advance:
        check = Check(snapshot.store, snapshot.index, snapshot.last_offset, advance)
        inside = list(check.findings(snapshot.damage))
    return check, [*check_files(snapshot.store.path), *_look_at_opening(snapshot), *inside]


def _known_among(findings: list[Finding], snapshot: "Snapshot") -> list[Finding]:
    """Losses from before the last start, unless something else is wrong that may be why they show."""
    if any(each.can_be_mended and each.remedy is not Remedy.REWRITE for each in findings):
        return []
    earlier = {(gap.first, gap.last) for gap in snapshot.damage if snapshot.was_lost_earlier(gap)}
    return [each for each in findings if (each.first, each.last) in earlier]


def _look_at_opening(snapshot: "Snapshot") -> Iterator[Finding]:
    salvage = snapshot.opening.salvage
    if salvage is not None:
        words = tidy(salvage.words, snapshot.store.path)
        what = f"the database is damaged ({words}); what follows is about what can be read of it"
        yield Finding(what, Remedy.REBUILD)
    if snapshot.is_state_behind:
        yield Finding("changes of sessions are lost", Remedy.NONE)


def _print(check: "Check", findings: list[Finding], known: list[Finding]) -> None:
    for finding in known:
        print(f"known: {finding.offsets} {'was' if finding.first == finding.last else 'were'} lost earlier")
    for finding in findings:
        print(f"damaged: {finding.text}")
    looked_at = [
        counted(check.messages, "message"),
        counted(check.batches, "sealed batch", "es"),
        counted(check.frames, "frame"),
        counted(check.records, "record"),
    ]
    print(f"read {', '.join(looked_at)}: {counted(len(findings), 'finding') if findings else 'all is well'}")
    if any(finding.can_be_mended for finding in findings):
        print("Run `penstock log repair` to put in order what can be saved")


def _as_json(check: "Check", findings: list[Finding], known: list[Finding]) -> str:
    content = {
        "messages": check.messages,
        "batches": check.batches,
        "frames": check.frames,
        "records": check.records,
        "findings": [
            {"what": each.what, "first": each.first, "last": each.last, "remedy": each.remedy}
            for each in findings
        ],
        "known": [{"first": each.first, "last": each.last} for each in known],
    }
    return msgspec.json.encode(content).decode()
