"""Recipes: how each kind of broker is started, Penstock and its peers, with and without persistence.

Each listens on a free loopback port and is pinned to one core, so figures are per core whatever a broker
could do with more. Only those of the durability scenarios write to disk.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bench.errors import WrongOption
from bench.peers.builds import NEW_MOSQUITTO, NEW_NATS, Build
from bench.report.machine import build_of_server
from penstock import __version__

MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 100
log_type error
"""

MOSQUITTO_IN_MEMORY = "persistence false\n"

# Started by root, mosquitto would switch to a user without write access to the data folder.
MOSQUITTO_DURABLE = """\
user root
persistence true
persistence_location {data}/
autosave_on_changes true
autosave_interval 1
"""

NATS_CONFIG = """\
listen: 127.0.0.1:{port}
max_pending: 256MB
write_deadline: "20s"
"""

REDIS_CONFIG = """\
port {port}
bind 127.0.0.1
save ""
appendonly no
maxclients 15000
client-output-buffer-limit pubsub 0 0 0
"""

# Started by root, nginx would switch to a user without write access to the data folder.
NCHAN_CONFIG = """\
load_module {module};
user root;
daemon off;
worker_processes 1;
worker_rlimit_nofile 15000;
pid {{data}}/nginx.pid;
error_log stderr error;
events {{{{ worker_connections 12000; }}}}
http {{{{
  access_log off;
  keepalive_requests 10000000;
  nchan_shared_memory_size 512M;
  client_body_temp_path {{data}}/body;
  proxy_temp_path {{data}}/proxy;
  fastcgi_temp_path {{data}}/fastcgi;
  uwsgi_temp_path {{data}}/uwsgi;
  scgi_temp_path {{data}}/scgi;
  server {{{{
    listen 127.0.0.1:{{port}};
    location ~ /pub/(.+)$ {{{{
      nchan_publisher;
      nchan_channel_id $1;
      nchan_message_buffer_length 20000;
      nchan_message_timeout 30s;
    }}}}
    location ~ /sub/(.+)$ {{{{
      nchan_subscriber;
      nchan_channel_id $1;
      nchan_subscriber_first_message newest;
    }}}}
  }}}}
}}}}
"""

NCHAN_MODULE = "/usr/lib/nginx/modules/ngx_nchan_module.so"


class Recipe(Struct, frozen=True):
    """Recipe for one kind of broker."""

    name: str
    scheme: str
    command: Callable[[str, int, Path], list[str]]
    """From the program's path, a port and a configuration file to a command line."""
    version: Callable[[str], str]
    program: str = ""
    source: str = ""
    """Source file of a program that is compiled for the bench, beside this module."""
    build: Build | None = None
    """Build of a program whose source is fetched."""
    packages: tuple[str, ...] = ()
    config: str = ""
    """Format string with `{port}` and `{data}`, a folder beside the configuration file."""
    environment: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    """Files that have to exist besides the program."""
    first_request: bytes = b""
    """HTTP request that forces what the program defers until its port is open."""


def data_folder(config: Path) -> Path:
    """Data folder of a broker with this configuration file."""
    return config.with_suffix(".data")


def _first_line(*arguments: str) -> Callable[[str], str]:
    def read_version(program: str) -> str:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=10, check=False)
        line = (done.stdout or done.stderr).partition("\n")[0]
        return line.partition(" sha=")[0].strip()

    return read_version


def _own_version() -> str:
    return f"penstock {__version__} ({build_of_server()})"


def penstock_command(program: str, port: int) -> list[str]:
    """Command line of a Penstock with MQTT only and no data directory."""
    ports = ("--mqtt-port", str(port), "--http-port", "off", "--sidecar-port", "off")
    return [program, "-m", "penstock", "serve", *ports]


def _durable_penstock(name: str, durability: str) -> Recipe:
    def command(program: str, port: int, config: Path) -> list[str]:
        flags = ["--data-dir", str(data_folder(config)), "--durability", durability]
        return [*penstock_command(program, port), *flags]

    return Recipe(
        name=name,
        scheme="mqtt",
        program=sys.executable,
        command=command,
        version=lambda _: f"{_own_version()}, durability {durability}",
    )


def _mosquitto(name: str, persistence: str, build: Build | None = None) -> Recipe:
    """Mosquitto of a build, or of Debian."""
    return Recipe(
        name=name,
        scheme="mqtt",
        program="mosquitto",
        packages=("mosquitto",),
        build=build,
        config=MOSQUITTO_CONFIG + persistence,
        command=lambda program, _, config: [program, "-c", str(config)],
        version=_first_line("-h"),
    )


def _nats(name: str, build: Build | None = None) -> Recipe:
    """NATS of a build, or of Debian."""
    return Recipe(
        name=name,
        scheme="nats",
        program="nats-server",
        packages=("nats-server",),
        build=build,
        config=NATS_CONFIG,
        command=lambda program, _, config: [program, "-c", str(config)],
        version=_first_line("--version"),
        environment=(("GOMAXPROCS", "1"),),
    )


PENSTOCK = Recipe(
    name="penstock",
    scheme="mqtt",
    program=sys.executable,
    command=lambda program, port, _: penstock_command(program, port),
    version=lambda _: _own_version(),
)

PEERS: dict[str, Recipe] = {
    "mosquitto": _mosquitto("mosquitto", MOSQUITTO_IN_MEMORY, NEW_MOSQUITTO),
    "mosquitto-debian": _mosquitto("mosquitto-debian", MOSQUITTO_IN_MEMORY),
    "nats": _nats("nats", NEW_NATS),
    "nats-debian": _nats("nats-debian"),
    "redis": Recipe(
        name="redis",
        scheme="redis",
        program="redis-server",
        packages=("redis-server",),
        config=REDIS_CONFIG,
        command=lambda program, _, config: [program, str(config)],
        version=_first_line("--version"),
    ),
    "nchan": Recipe(
        name="nchan",
        scheme="nchan",
        program="nginx",
        packages=("nginx-light", "libnginx-mod-nchan"),
        files=(NCHAN_MODULE,),
        config=NCHAN_CONFIG.format(module=NCHAN_MODULE),
        command=lambda program, _, config: [program, "-e", "stderr", "-c", str(config)],
        version=_first_line("-v"),
    ),
    "grpcpp": Recipe(
        name="grpcpp",
        scheme="nexusd",
        source="grpc_daemon.cc",
        command=lambda program, port, _: [program, f"127.0.0.1:{port}"],
        version=_first_line("--version"),
    ),
}

PENSTOCK_HTTP = Recipe(
    name="penstock-http",
    scheme="http",
    program=sys.executable,
    command=lambda program, port, _: [
        *(program, "-m", "penstock", "serve"),
        *("--mqtt-port", "off", "--http-port", str(port), "--sidecar-port", "off"),
    ],
    first_request=b"GET /topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    version=lambda _: _own_version(),
)
"""Penstock with an HTTP port only."""

PENSTOCK_GRPC = Recipe(
    name="penstock-grpc",
    scheme="grpc",
    program=sys.executable,
    command=lambda program, port, _: [
        *(program, "-m", "penstock", "serve"),
        *("--mqtt-port", "off", "--http-port", "off", "--sidecar-port", str(port)),
    ],
    version=lambda _: _own_version(),
)
"""Penstock with a gRPC port only."""

DURABLE_PENSTOCKS = (_durable_penstock("penstock-fsync", "fsync"), _durable_penstock("penstock-os", "os"))
"""Penstock with a data directory; the first has the default durability."""

DURABLE_PEERS: dict[str, Recipe] = {
    "mosquitto": _mosquitto("mosquitto-saving", MOSQUITTO_DURABLE, NEW_MOSQUITTO),
    "mosquitto-debian": _mosquitto("mosquitto-debian-saving", MOSQUITTO_DURABLE),
}
"""Peers that can save on every change, by the name of the peer."""


def choose_peers(names: str) -> list[Recipe]:
    """Peers of a comma list; `none` and an empty text are the empty list.

    Raises:
        WrongOption: there is no such peer.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["none"]:
        return []
    unknown = [name for name in wanted if name not in PEERS]
    if unknown:
        raise WrongOption(f"unknown peer {', '.join(unknown)}; known are {', '.join(PEERS)}, none")
    return [PEERS[name] for name in dict.fromkeys(wanted)]
