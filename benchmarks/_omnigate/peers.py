"""The other gateways, started for the purpose: one worker each, kept connections to the same upstream."""

from __future__ import annotations

import shutil
from pathlib import Path


def installed(name: str) -> bool:
    """Tell whether a peer can be started."""
    return _program(name) is not None


def _program(name: str) -> str | None:
    # Debian puts both where only root's PATH looks.
    return shutil.which(name, path="/usr/sbin:/usr/local/sbin") or shutil.which(name)


def command(name: str, port: int, upstream: int, directory: Path) -> list[str]:
    """Write the peer's configuration and return how it is started in the foreground."""
    program, path = _program(name), directory / f"{name}.conf"
    assert program is not None
    if name == "nginx":
        path.write_text(_nginx(port, upstream, directory))
        return [program, "-c", str(path), "-p", str(directory)]
    path.write_text(_haproxy(port, upstream))
    return [program, "-f", str(path), "-db"]


def _nginx(port: int, upstream: int, directory: Path) -> str:
    temp = "".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
daemon off; worker_processes 1; pid {directory}/nginx.pid; error_log /dev/null;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; {temp}
    upstream up {{ server 127.0.0.1:{upstream} max_fails=0; keepalive 128; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


def _haproxy(port: int, upstream: int) -> str:
    return f"""
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 5s
    http-reuse always
frontend in
    bind 127.0.0.1:{port}
    default_backend up
backend up
    server one 127.0.0.1:{upstream} pool-max-conn 256
"""
