"""Load over many topics: `spread.py PORT TOPICS CONNECTIONS SECONDS`; prints one JSON line.

Every round sends to the next topic, receives there and acks. With 0 seconds each topic is used once.
"""

from __future__ import annotations

import json
import sys
from itertools import cycle

from benchmarks._mailbox.load import LEASED, Line, Load, Steps, ack_request, request, send_request


class Spread(Load):
    """Rounds that walk through the topics."""

    def __init__(self, topics: int) -> None:
        super().__init__("cycle", 1, "spread", 0.0)
        names = [f"spread/{number:06}" for number in range(topics)]
        asked = ({"topic": name, "max_messages": 1, "visibility_ms": 60000} for name in names)
        recvs = [request("/v1/recv", json.dumps(each).encode()) for each in asked]
        self.rounds_of = cycle(zip([send_request(name, 1) for name in names], recvs, strict=True))

    def steps(self) -> Steps:
        """Send to the next topic, receive there, ack."""
        send, recv = next(self.rounds_of)
        yield send
        found = LEASED.findall((yield recv))
        if found:
            yield ack_request(found)
            self.count += len(found)


def main() -> None:
    """Run for so many seconds, or until every topic was used."""
    port, topics, connections, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    load = Spread(topics)
    if not seconds:
        load.mode = "fill"
    took_s = load.run([Line(port) for _ in range(connections)], seconds or topics)
    times = sorted(load.times)
    marks = {f"p{name}_ms": 1000 * times[int(len(times) * part)] for name, part in (("50", 0.5), ("99", 0.99))}
    print(json.dumps({"per_s": load.count / took_s, "count": load.count, **marks}))


if __name__ == "__main__":
    main()
