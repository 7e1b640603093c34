"""Limits that never queue: a permit is there now, or the answer is no."""

from __future__ import annotations

from penstock.kernel.errors import Busy


class Limiter:
    """A counted resource: places in flight, bytes of memory, open probes. Taken all together or not at all."""

    __slots__ = ("capacity", "in_use", "name", "refused")

    def __init__(self, name: str, capacity: int) -> None:
        if capacity < 1:
            message = f"limiter {name}: capacity must be at least 1, not {capacity}"
            raise ValueError(message)
        self.name = name
        self.capacity = capacity
        self.in_use = 0
        self.refused = 0

    @property
    def free(self) -> int:
        """Return how many permits are left."""
        return self.capacity - self.in_use

    def try_acquire_many(self, count: int = 1) -> bool:
        """Take `count` permits if all of them are free."""
        if self.in_use + count > self.capacity:
            self.refused += 1
            return False
        self.in_use += count
        return True

    def acquire_or_busy(self, count: int = 1) -> None:
        """Take `count` permits or raise `Busy`."""
        if not self.try_acquire_many(count):
            raise Busy(f"{self.name} is used up", limit=self.name)

    def release(self, count: int = 1) -> None:
        """Give permits back; giving back more than was taken is a bug."""
        if count > self.in_use:
            message = f"limiter {self.name}: released {count} of {self.in_use}"
            raise RuntimeError(message)
        self.in_use -= count


class ByteBudget:
    """All bodies of a process together, and a share of it no single holder may exceed.

    A listener opens its own `share`, which may hold at most half, so that one service cannot take the
    whole process's memory away from the others.
    """

    __slots__ = ("_total", "share_of")

    def __init__(self, capacity: int, *, share_of: float = 0.5) -> None:
        """Bound the bytes of the process."""
        self._total = Limiter("node_bytes", capacity)
        self.share_of = share_of

    @property
    def capacity(self) -> int:
        """Return the bound of the process."""
        return self._total.capacity

    @property
    def in_use(self) -> int:
        """Return the bytes taken by everybody."""
        return self._total.in_use

    @property
    def refused(self) -> int:
        """Return how often the answer was no."""
        return self._total.refused

    def share(self) -> ByteShare:
        """Open one holder's share."""
        return ByteShare(self._total, max(1, int(self.capacity * self.share_of)))

    def try_take(self, count: int) -> bool:
        """Take bytes for no holder in particular."""
        return self._total.try_acquire_many(count)

    def give(self, count: int) -> None:
        """Give bytes back when their last copy is gone."""
        self._total.release(count)


class ByteShare:
    """One holder's part of the byte budget."""

    __slots__ = ("_total", "capacity", "in_use")

    def __init__(self, total: Limiter, capacity: int) -> None:
        """Bound this holder inside the total."""
        self._total = total
        self.capacity = capacity
        self.in_use = 0

    def try_take(self, count: int) -> bool:
        """Take bytes if both the share and the process have them."""
        if self.in_use + count > self.capacity:
            self._total.refused += 1
            return False
        if not self._total.try_acquire_many(count):
            return False
        self.in_use += count
        return True

    def give(self, count: int) -> None:
        """Give bytes back when their last copy is gone; giving back more than was taken is a bug."""
        if count > self.in_use:
            message = f"byte share: gave back {count} of {self.in_use}"
            raise RuntimeError(message)
        self.in_use -= count
        self._total.release(count)


class TokenBucket:
    """A rate with a depth: `rate` tokens a second flow in, at most `depth` are kept. Rate 0 turns it off."""

    __slots__ = ("_at", "_level", "depth", "name", "rate", "refused")

    def __init__(self, name: str, *, rate: float, depth: float, now: float) -> None:
        self.name = name
        self.rate = rate
        self.depth = depth
        self.refused = 0
        self._level = depth
        self._at = now

    def try_take(self, now: float, count: float = 1.0) -> bool:
        """Take `count` tokens if they are there."""
        rate, level, at = self.rate, self._level, self._at
        if rate <= 0:
            return True
        # As `level` has it, in one step: this stands in front of every request.
        if now > at:
            level += (now - at) * rate
            self._at = now
        if level > self.depth:
            level = self.depth
        if level < count:
            self._level = level
            self.refused += 1
            return False
        self._level = level - count
        return True

    def give_back(self, count: float = 1.0) -> None:
        """Put tokens back that turned out not to be needed; no more than the depth is kept."""
        self._level = min(self.depth, self._level + count)

    def level(self, now: float) -> float:
        """Return the tokens there at `now`; a clock that went back adds none."""
        return min(self.depth, self._level + max(0.0, now - self._at) * self.rate)

    def wait_s(self, now: float, count: float = 1.0) -> float:
        """Return how long until `count` tokens will be there, for Retry-After."""
        missing = count - self.level(now)
        return max(0.0, missing / self.rate) if self.rate > 0 else 0.0
