"""The gateways under test, each a process in front of the same upstream, configured as its manual recommends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks._overload.upstream import SLOTS

TICKS = os.sysconf("SC_CLK_TCK")
READY_S = 15.0
# Of one class, where tenants are told apart: the first one floods.
TENANTS = ("flooding", "light-1", "light-2")


@dataclass
class Gateway:
    """A running gateway: where it listens, and what a caller of each class sends."""

    name: str
    port: int
    pid: int
    fields: dict[str, str] = field(default_factory=dict)

    def request(self, caller: str) -> bytes:
        """Write the request of one class of caller."""
        extra = self.fields.get(caller, "")
        return f"GET /work HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n".encode("ascii")

    def cpu_s(self) -> float:
        """Return user and system seconds of the process and its children."""
        return sum(_cpu_s(pid) for pid in (self.pid, *_children(self.pid)))


def _cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="ascii")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def free_port() -> int:
    """Find a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nobody listens on {port}")


@contextmanager
def running(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run a process and end it afterwards."""
    process = subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def upstream() -> Iterator[int]:
    """Run the upstream; gives its port."""
    with running([sys.executable, "-m", "benchmarks._overload.upstream"], stdout=subprocess.PIPE) as process:
        yield int(process.stdout.readline())  # type: ignore[union-attr]


@contextmanager
def penstock(directory: Path, upstream_port: int) -> Iterator[Gateway]:
    """Run a node with the gateway; its three classes, and three tenants of one class, differ only in their token."""
    config = directory / "penstock.toml"
    config.write_text(
        f"""
[node]
mailbox = false
storage = false
[http]
max_conns = 6000
max_conns_per_ip = 6000
[omnigate.quotas]
default_rps = 0
per_ip_rps = 0
per_cap_rps = 0
[omnigate.fair_queue]
max_inflight = {SLOTS}
adaptive = false
[[omnigate.routes]]
prefix = "/work"
upstream = ["http://127.0.0.1:{upstream_port}"]
timeout = "5s"
""",
        encoding="ascii",
    )
    command = [
        sys.executable,
        "-m",
        "penstock",
        "up",
        "--amnesia",
        "--ephemeral-ports",
        "--json",
        "--config",
        str(config),
    ]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        ready = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        ports, operator = ready["ports"], ready["token"]
        fields = {
            name: f"Authorization: Bearer {_issue(ports['passport'], operator, name, class_name)}\r\n"
            for name, class_name in (("authed", "authed"), ("internal", "internal"), *((n, "authed") for n in TENANTS))
        }
        # As long as a real one, well-formed, and not signed by anybody: each costs a look at its signature.
        good = fields["authed"].split()[-1]
        fields["forger"] = f"Authorization: Bearer {good[:200]}NUMBER{good[206:]}\r\n"
        yield Gateway("penstock", ports["omnigate"], process.pid, fields)


def _issue(port: int, operator: str, tenant: str, class_name: str) -> str:
    body = {"subject_ref": tenant, "tenant": tenant, "class": class_name, "audience": "omnigate", "ttl_s": 3600}
    asked = Request(
        f"http://127.0.0.1:{port}/v1/passport/issue",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {operator}", "Content-Type": "application/json"},
    )
    with urlopen(asked, timeout=5) as answer:
        token: str = json.load(answer)["token"]
        return token


@contextmanager
def nginx(directory: Path, upstream_port: int) -> Iterator[Gateway]:
    """Run nginx; the open-source one can cap connections to an upstream but not queue for them, so it passes all on."""
    port = free_port()
    config = directory / "nginx.conf"
    config.write_text(
        f"""
daemon off; worker_processes 1; pid {directory}/nginx.pid; error_log {directory}/error.log crit;
events {{ worker_connections 8000; }}
http {{
  access_log off; client_body_temp_path {directory}/b; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;
  uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s; keepalive_requests 1000000;
  upstream work {{ server 127.0.0.1:{upstream_port}; keepalive 1024; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://work; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 5s;
    }}
  }}
}}
""",
        encoding="ascii",
    )
    with running(["nginx", "-p", str(directory), "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        wait_for(port)
        yield Gateway("nginx", port, process.pid)


def _haproxy(directory: Path, upstream_port: int, priority: str) -> tuple[Path, int]:
    port = free_port()
    config = directory / "haproxy.cfg"
    config.write_text(
        f"""
global
  maxconn 8000
  nbthread 1
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 5s
  timeout queue 5s
frontend in
  bind 127.0.0.1:{port} backlog 4096
  {priority}
  default_backend work
backend work
  http-reuse always
  server one 127.0.0.1:{upstream_port} maxconn {SLOTS} maxqueue 512
""",
        encoding="ascii",
    )
    return config, port


@contextmanager
def haproxy(directory: Path, upstream_port: int) -> Iterator[Gateway]:
    """Run HAProxy with the upstream's slots as maxconn and a queue of 512 before it: first come, first served."""
    config, port = _haproxy(directory, upstream_port, "")
    with running(["haproxy", "-f", str(config)], stderr=subprocess.DEVNULL) as process:
        wait_for(port)
        yield Gateway("haproxy", port, process.pid)


@contextmanager
def haproxy_priority(directory: Path, upstream_port: int) -> Iterator[Gateway]:
    """Run HAProxy with its priority classes: strict, so that a higher class goes first as long as it has anything."""
    rules = (
        "http-request set-priority-class int(-10) if { req.hdr(X-Class) internal }\n"
        "  http-request set-priority-class int(-5) if { req.hdr(X-Class) authed }"
    )
    config, port = _haproxy(directory, upstream_port, rules)
    with running(["haproxy", "-f", str(config)], stderr=subprocess.DEVNULL) as process:
        wait_for(port)
        fields = {name: f"X-Class: {name}\r\n" for name in ("authed", "internal")}
        yield Gateway("haproxy, priority", port, process.pid, fields)


PEERS: dict[str, Callable[[Path, int], AbstractContextManager[Gateway]]] = {
    "nginx": nginx,
    "haproxy": haproxy,
    "haproxy-priority": haproxy_priority,
}


def available(name: str) -> bool:
    """Tell whether a peer is installed."""
    return shutil.which(name.partition("-")[0]) is not None
