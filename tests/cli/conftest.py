import socket, subprocess, time
from types import SimpleNamespace
import pytest

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    conf = tmp_path_factory.mktemp("mosq") / "m.conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_keepalive 0\n" if False else f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    child = subprocess.Popen(["/usr/sbin/mosquitto", "-c", str(conf)], stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close(); break
        except OSError: time.sleep(0.05)
    yield SimpleNamespace(port=port)
    child.terminate(); child.wait()
