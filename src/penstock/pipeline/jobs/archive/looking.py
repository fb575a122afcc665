"""What can be found wrong with an archive before Spark is started: its lake, and its server."""

from penstock.pipeline.jobs.archive.delta import FORMAT, state_table
from penstock.pipeline.jobs.archive.options import ArchiveOptions
from penstock.pipeline.jobs.archive.parquet import refuse_delta
from penstock.pipeline.jobs.asking import ask_first
from penstock.pipeline.lake import lake_messages
from penstock.pipeline.lake.table import make_lake


def look_first(options: ArchiveOptions) -> None:
    """Check the options, the lake and the server, and make the folder of the lake.

    Raises:
        ValueError: a number is out of range, or the format is unknown.
        PenstockError: the lake does not fit or cannot be written, or the server is not there.
    """
    options.check()
    table = state_table(options.lake) if options.format == FORMAT else lake_messages(options.lake)
    if options.format != FORMAT:
        refuse_delta(table)
    manifest = table.manifest()
    is_new = not manifest.version
    if not is_new:
        options.check_fit(manifest)
    filters = options.filters if is_new else manifest.filters
    found = ask_first(options.connection(), filters, is_patient=options.follow)
    if found is not None and not is_new:
        options.check_log(manifest, found.log_id)
    make_lake(options.lake)
