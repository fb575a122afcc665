"""Server-Sent Events of the web door."""
