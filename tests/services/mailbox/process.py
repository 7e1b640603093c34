"""A mailbox in a process of its own, and a small HTTP client for it.

`process.py DATA_DIR` prints its port when ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


class Server:
    """Start, kill and start again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen | None = None
        self.port = 0

    def start(self) -> None:
        command = [sys.executable, __file__, str(self._directory)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        self.port = int(self._process.stdout.readline() or 0)
        if not self.port:
            raise RuntimeError("the mailbox did not start")

    def kill(self) -> None:
        """End it at once; does nothing to one that has ended."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(60)
        self._process.stdout.close()

    def stop(self) -> int:
        self._process.terminate()
        code = self._process.wait(60)
        self._process.stdout.close()
        return code


class Http:
    """One connection, one request at a time. Whatever breaks is an OSError: the outcome is then unknown."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: object) -> tuple[int, dict]:
        return await self.request("POST", path, json.dumps(body).encode())

    async def request(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, dict]:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
            reader, writer = self._streams
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            raw = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.split(": ", 1) for line in raw.split("\r\n")[1:] if ": " in line)
            self.headers = {name.lower(): value for name, value in fields.items()}
            content = await reader.readexactly(int(self.headers.get("content-length", "0")))
            if self.headers.get("connection") == "close":
                self.close()
            return int(raw.split(" ", 2)[1]), json.loads(content) if content else {}
        except (asyncio.IncompleteReadError, EOFError) as error:
            self.close()
            raise ConnectionError("cut") from error
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def main() -> None:
    from penstock.config import ListenerSettings
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.supervisor import Supervisor
    from penstock.services.mailbox.config import MailboxOptions
    from penstock.services.mailbox.service import SERVICE, MailboxService

    listener = ListenerSettings(
        host="127.0.0.1", port=0, uds_path=None, uds_allow_uids=(), max_conns=256, max_conns_per_ip=256,
        read_timeout_s=60.0, write_timeout_s=60.0, idle_timeout_s=60.0, request_deadline_s=30.0, body_bytes_max=1 << 20,
        decompress_ratio_cap=10, tls_cert_path=None, tls_key_path=None, allowed_hosts=(),
    )  # fmt: skip
    options = MailboxOptions(listener=listener, data_dir=Path(sys.argv[1]), wal_bytes=2 << 20)
    service = MailboxService(Inventory(SERVICE), options)
    supervisor = Supervisor(service.inventory, service.children(), service.supervision())
    await supervisor.start()
    sys.stdout.write(f"{service.listener.port}\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    report = await supervisor.drain()
    await service.close()
    sys.exit(0 if report.clean else 1)


if __name__ == "__main__":
    asyncio.run(main())
