"""Load on an HTTP mailbox: `load.py ADDRESS MODE CONNECTIONS SECONDS BATCH [TOPIC] [RATE]`; prints one JSON line.

ADDRESS is a port on loopback or the path of a Unix socket.

MODE is `send`, `cycle` (send, recv, ack), `recv` (recv, ack) or `fill` (send BATCH messages a request until SECONDS
messages are there). Every connection is a closed loop unless RATE (rounds a second over all) paces it: then a round's
first request is timed from when it was due, so that a server that is late cannot hide it. `PENSTOCK_TOKEN` in the
environment is sent as the capability.

One thread, one epoll, requests made beforehand: the client shall need less of the machine than the server it measures.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import sys
import time
from base64 import b64encode
from collections import deque
from collections.abc import Generator

PAYLOAD = b64encode(bytes(range(256))).decode()
# An envelope begins with the two values an ack needs.
LEASED = re.compile(rb'"msg_id":"([^"]+)","receipt":"([^"]+)"')
# One buffer for all connections: asking for a large new one each time costs more than the answer in it.
RECEIVED = memoryview(bytearray(1 << 18))
TOKEN = os.environ.get("PENSTOCK_TOKEN", "")
ALLOWED = f"Authorization: Bearer {TOKEN}\r\n".encode() if TOKEN else b""
Steps = Generator[bytes, bytes, None]


def request(path: str, body: bytes) -> bytes:
    """Write one request."""
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Type: application/json\r\n" % (path.encode(), ALLOWED)
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def send_request(topic: str, batch: int) -> bytes:
    """Send one message or a batch."""
    message = f'{{"topic":"{topic}","payload_b64":"{PAYLOAD}"}}'
    if batch == 1:
        return request("/v1/send", message.encode())
    return request("/v1/send/batch", f'{{"messages":[{",".join([message] * batch)}]}}'.encode())


def ack_request(found: list[tuple[bytes, bytes]]) -> bytes:
    """Ack what was received."""
    acks = [b'{"msg_id":"%b","receipt":"%b"}' % each for each in found]
    return request("/v1/ack", acks[0] if len(acks) == 1 else b'{"acks":[%b]}' % b",".join(acks))


class Line:
    """One connection and where it is in its round."""

    __slots__ = ("buffer", "sent_at", "sock", "steps")

    def __init__(self, address: str) -> None:
        """Connect."""
        if address.isdigit():
            self.sock = socket.create_connection(("127.0.0.1", int(address)))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(address)
        self.buffer = b""
        self.sent_at = 0.0
        self.steps: Steps

    def answer(self) -> bytes | None:
        """Return a whole answer, or None while some of it is on its way."""
        count = self.sock.recv_into(RECEIVED)
        if not count:
            raise SystemExit("the server closed a connection")
        self.buffer = data = self.buffer + RECEIVED[:count]
        end = data.find(b"\r\n\r\n")
        at = data.find(b"Content-Length: ")
        if end < 0 or len(data) < end + 4 + int(data[at + 16 : data.find(b"\r", at)]):
            return None
        self.buffer = b""
        return data


class Load:
    """All connections of a run."""

    def __init__(self, mode: str, batch: int, topic: str, rate: float) -> None:
        """Prepare the bytes that repeat."""
        self.mode, self.batch, self.rate = mode, batch, rate
        self.send = send_request(topic, batch)
        asked = json.dumps({"topic": topic, "max_messages": batch, "visibility_ms": 60000})
        self.recv = request("/v1/recv", asked.encode())
        self.times: list[float] = []
        self.count = self.refused = self.rounds = 0
        self.idle: deque[Line] = deque()

    def steps(self) -> Steps:
        """Go round once: requests out, answers in."""
        if self.mode != "recv":
            yield self.send
        if self.mode in ("cycle", "recv"):
            found = LEASED.findall((yield self.recv))
            if found:
                yield ack_request(found)
                self.count += len(found)
        else:
            self.count += self.batch

    def begin(self, line: Line, due: float) -> None:
        """Start a round."""
        line.steps = self.steps()
        line.sent_at = due
        line.sock.sendall(next(line.steps))

    def go_on(self, line: Line, now: float) -> None:
        """Take an answer if it is there, and do the next step."""
        data = line.answer()
        if data is None:
            return
        self.times.append(now - line.sent_at)
        if data[9:12] != b"200":
            self.refused += 1
        try:
            following = line.steps.send(data)
        except StopIteration:
            self.idle.append(line)
        else:
            line.sent_at = now
            line.sock.sendall(following)

    def start_due(self, began: float, now: float) -> None:
        """Start the rounds whose time has come: all of them without a rate."""
        while self.idle and (not self.rate or began + self.rounds / self.rate <= now):
            due = began + self.rounds / self.rate if self.rate else now
            self.rounds += 1
            self.begin(self.idle.popleft(), due)

    def run(self, lines: list[Line], goal: int) -> float:
        """Go round until the time is over, or `fill` has stored enough; return the seconds it took."""
        poll = select.epoll()
        by_fd = {line.sock.fileno(): line for line in lines}
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        self.idle.extend(lines)
        began = now = time.perf_counter()
        while self.count < goal if self.mode == "fill" else now - began < goal:
            self.start_due(began, now)
            events = poll.poll(0.001 if self.rate else 1)
            now = time.perf_counter()
            for fd, _ in events:
                self.go_on(by_fd[fd], now)
        return time.perf_counter() - began


def main() -> None:
    """Run for so many seconds, or until so many messages are there."""
    address, mode, connections, goal, batch = *sys.argv[1:3], *map(int, sys.argv[3:6])
    topic, rate = (*sys.argv[6:8], *("bench", "0")[len(sys.argv[6:8]) :])
    load = Load(mode, batch, topic, float(rate))
    lines = [Line(address) for _ in range(connections)]
    before = time.process_time()
    elapsed = load.run(lines, goal)
    own_us = (time.process_time() - before) / max(1, load.count) * 1e6
    times = sorted(load.times) or [0.0]
    marks = {
        f"p{name}_ms": 1000 * times[min(len(times) - 1, int(len(times) * part))]
        for name, part in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }
    per_s = load.count / elapsed
    figures = {"per_s": per_s, "count": load.count, "seconds": elapsed, "refused": load.refused, "client_us": own_us}
    print(json.dumps({**figures, **marks}))


if __name__ == "__main__":
    main()
