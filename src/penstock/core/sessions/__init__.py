"""Sessions: connect, takeover, expiry, wills, progress."""
