"""Logging of the program: one line per event on standard error, as text or as JSON.

Records of the standard library (asyncio, for example) are formatted alike. An exception is one line with its
type, its text and where it was raised; the traceback is added only at level `debug`. Importing this takes a
tenth of a second (structlog), so only long-running commands do it.
"""

import logging
import re
import sys
import traceback
from functools import partial
from types import TracebackType
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from penstock.net.log_throttle import shortened

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
AUDIT = "penstock.audit"
"""Value of `logger` in the lines of the audit trail."""
PLAIN_WORD = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f-\x9f\u2028\u2029]+")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Raised = tuple[type[BaseException], BaseException, TracebackType | None]


_steps: list[Processor] = []
"""Processors of an event; loggers hold this very list, so that changing it affects all of them."""


def configure_logging(level: str, format: str) -> None:
    """Send events of at least this level to standard error, in this format (`text` or `json`).

    A later call replaces the configuration.
    """
    threshold = LEVELS[level]
    _steps[:] = [
        partial(drop_below, threshold),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _fold_exception_and_traceback if threshold <= logging.DEBUG else fold_exception,
        json_line if format == "json" else text_line,
    ]
    structlog.configure(
        processors=_steps,
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=threshold, handlers=[Forwarder()], force=True)


def write_audit(event: str, details: dict[str, object]) -> None:
    """Write a line of the audit trail, at any level of the log."""
    shown = {key: shortened(value) if isinstance(value, str) else value for key, value in details.items()}
    structlog.get_logger(AUDIT).info(event, logger=AUDIT, **shown)


def drop_below(threshold: int, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Drop events below a level, except those of the audit trail."""
    if event.get("logger") == AUDIT:
        return event
    if LEVELS.get(method, logging.CRITICAL) < threshold:
        raise structlog.DropEvent
    return event


class Forwarder(logging.Handler):
    """Forwards records of the standard library's loggers to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as an event with the name of its logger."""
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def fold_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and text in one line, and the place it was raised."""
    raised = _raised(event.pop("exc_info", None))
    if raised is not None:
        kind, error, trace = raised
        event["error"] = " ".join(f"{kind.__name__}: {error}".split())
        frames = traceback.extract_tb(trace)
        if frames:
            event["at"] = f"{frames[-1].filename}:{frames[-1].lineno}"
    return event


def _fold_exception_and_traceback(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    raised = _raised(event.get("exc_info"))
    if raised is not None:
        event["traceback"] = "".join(traceback.format_exception(*raised))
    return fold_exception(logger, method, event)


def _raised(info: Any) -> Raised | None:
    """The exception of `exc_info`: an exception, its three parts, or True for the one being handled."""
    if isinstance(info, BaseException):
        return type(info), info, info.__traceback__
    if isinstance(info, tuple):
        return info if info[0] is not None else None
    kind, error, trace = sys.exc_info() if info else (None, None, None)
    return (kind, error, trace) if kind is not None and error is not None else None


def text_line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Time, level, event and the rest as `key=value`, on one line whatever the values hold."""
    words = [event.pop("time"), event.pop("level").ljust(7), CONTROLS.sub(" ", str(event.pop("event")))]
    words.extend(f"{key}={_quote(value)}" for key, value in event.items() if value is not None)
    return " ".join(words)


def _quote(value: object) -> str:
    text = str(value)
    return text if PLAIN_WORD.fullmatch(text) else repr(text)


def json_line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """One JSON object; values without a JSON form are written as text."""
    return msgspec.json.encode(event, enc_hook=str).decode()
