"""The same load on another queue: `peer_load.py PEER PORT CONNECTIONS SECONDS BATCH`; prints one JSON line.

One thread, one epoll and as many connections as the mailbox gets; where a peer cannot keep a connection (moto), threads
that open one for each request.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from benchmarks._mailbox import peers
from benchmarks._mailbox.asking import Whole
from benchmarks._mailbox.load import RECEIVED, Line, Load


class PeerLine(Line):
    """A connection whose answers are whole when the step that asked says so."""

    __slots__ = ("number", "whole")

    def __init__(self, name: str, port: int, number: int) -> None:
        """Connect, and say hello where that is the custom."""
        super().__init__(str(port))
        self.number = number
        self.whole: Whole = lambda _data: True
        if name in peers.HELLO:
            self.whole = peers.GREETED[name]
            self.sock.sendall(peers.HELLO[name](number))
            while self.answer() is None:
                pass

    def answer(self) -> bytes | None:
        """Return a whole answer, or None while some of it is on its way."""
        count = self.sock.recv_into(RECEIVED)
        if not count:
            raise SystemExit("the peer closed a connection")
        self.buffer = data = self.buffer + RECEIVED[:count]
        if not self.whole(data):
            return None
        self.buffer = b""
        return data


class PeerLoad(Load):
    """All connections to a peer."""

    def __init__(self, peer: peers.Peer, batch: int) -> None:
        """Prepare nothing: a peer's steps make their own bytes."""
        super().__init__("cycle", batch, "bench", 0.0)
        assert peer.rounds is not None
        self._rounds = peer.rounds

    def begin(self, line: Line, due: float) -> None:
        """Start a round."""
        assert isinstance(line, PeerLine)
        line.steps = self._rounds(self.batch, line.number)  # type: ignore[assignment]
        line.sent_at = due
        self._write(line, next(line.steps))

    def _write(self, line: PeerLine, step: object) -> None:
        data, line.whole = step  # type: ignore[misc]
        line.sock.sendall(data)

    def go_on(self, line: Line, now: float) -> None:
        """Take an answer if it is there, and do the next step."""
        data = line.answer()
        if data is None:
            return
        self.times.append(now - line.sent_at)
        try:
            following = line.steps.send(data)
        except StopIteration as end:
            self.count += end.value
            self.idle.append(line)
        else:
            line.sent_at = now
            assert isinstance(line, PeerLine)
            self._write(line, following)


def in_threads(port: int, connections: int, seconds: float) -> tuple[int, list[float]]:
    """Go round with moto, whose server closes after each answer."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    def loop() -> None:
        while (before := time.perf_counter()) < until:
            peers.moto_cycle(port)
            times.append((time.perf_counter() - before) / 3)

    threads = [threading.Thread(target=loop) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(times), times


def main() -> None:
    """Run for so many seconds."""
    name, port, connections, seconds, batch = sys.argv[1], *map(int, sys.argv[2:6])
    peer = peers.PEERS[name]
    began = time.perf_counter()
    if peer.rounds is None:
        count, times = in_threads(port, min(4, connections), seconds)
    else:
        load = PeerLoad(peer, batch)
        load.run([PeerLine(name, port, number) for number in range(1, connections + 1)], seconds)
        count, times = load.count, load.times
    elapsed = time.perf_counter() - began
    times.sort()
    marks = {f"p{part}_ms": 1000 * times[int((len(times) - 1) * part / 100)] if times else 0.0 for part in (50, 99)}
    print(json.dumps({"per_s": count / elapsed, "count": count, "seconds": elapsed, **marks}))


if __name__ == "__main__":
    main()
