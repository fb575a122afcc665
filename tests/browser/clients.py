"""A page with a client of penstock.js, which keeps everything that it is told."""

CONNECT = """
  for (const name of ["box", "states", "gaps", "ends", "errors"]) window[name] = new Box();
  window.keep = ({ topic, data }) => box.put([topic, data]);
  window.client = script.connect("/ws", {
    retryMs: 50,
    maxRetryMs: 200,
    onState: states.put,
    onGap: (statement, { filter }) => gaps.put({ filter, statement }),
    onEnd: ({ code, message }, { filter }) => ends.put({ filter, code, message }),
    onError: ({ code }) => errors.put(code),
    ...given[0],
  });
"""
"""Connects with options that may be given; what comes is in boxes of the page."""
