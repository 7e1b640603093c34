"""A content store in a process of its own: `process.py DIRECTORY [option=number ...]` prints its port when ready."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


class Server:
    """Start, kill and start again."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._command = [sys.executable, __file__, str(directory), *options]
        self._process: subprocess.Popen | None = None
        self.port = 0

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, env=environment)
        self.port = int(self._process.stdout.readline() or 0)
        if not self.port:
            raise RuntimeError("the store did not start")

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._process.stdout.close()
        return code

    def resident_bytes(self, line: str = "VmRSS") -> int:
        """Return the memory it has, or had at most (`VmHWM`)."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(each.split()[1]) for each in lines if each.startswith(line)) << 10

    def forget_peak(self) -> None:
        """Start the high-water mark anew."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")


async def main() -> None:
    from penstock.kernel.clock import SYSTEM
    from tests.services.storage.worlds import served

    options = {name: int(value) for name, value in (each.split("=") for each in sys.argv[2:])}
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with served(Path(sys.argv[1]), **options) as (service, _):
        assert service.store.inventory.clock is SYSTEM
        sys.stdout.write(f"{service.listener.port}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
