"""Wire formats as bytes and values; no socket, loop or clock."""
