"""Witness of stalls, a program: it pings a server all the time and prints the worst wait in CPU time of it.

It is a process of its own, so that the load which a test makes does not delay it. Arguments are the port and
the process id of the server; it ends with its standard input.
"""

import select
import socket
import sys
from pathlib import Path

CONNECT = bytes.fromhex("101300044d5154540402003c0007") + b"witness"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
PAUSE_S = 0.01


def main(port: int, process: int) -> None:
    """Ping until the standard input ends, then print the milliseconds."""
    used = Path(f"/proc/{process}/task/{process}/schedstat")
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.settimeout(60)
    client.sendall(CONNECT)
    assert len(client.recv(4)) == 4
    print("ready", flush=True)
    worst_ns = 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        before = cpu_ns(used)
        client.sendall(PINGREQ)
        assert client.recv(2) == PINGRESP
        worst_ns = max(worst_ns, cpu_ns(used) - before)
    print(worst_ns / 1e6, flush=True)


def cpu_ns(used: Path) -> int:
    """CPU time of the thread that runs the loop."""
    return int(used.read_text(encoding="ascii").split()[0])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
