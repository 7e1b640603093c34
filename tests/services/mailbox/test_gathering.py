"""A small batch waits for company while the CPU is short, and only as long as company comes."""

from __future__ import annotations

from penstock.services.mailbox.gathering import Gathering


class Machine:
    """A process that uses so much of a core; a commit every millisecond."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.used_s = 5.0
        self.gathering = Gathering(lambda: self.used_s)
        self.gathering.wants(1, self.now_s)

    def commits(self, count: int, *, share: float, waiting: int = 3, coming: int | None = None) -> int:
        """Commit so often; return how many commits were held back. `coming` is how many join one that is."""
        held = 0
        for _ in range(count):
            self.now_s += 0.001
            self.used_s += 0.001 * share
            if self.gathering.wants(waiting, self.now_s):
                held += 1
                self.gathering.gathered(waiting, waiting + (waiting if coming is None else coming))
        return held


def test_nothing_waits_while_there_is_cpu_to_spare() -> None:
    machine = Machine()

    assert machine.commits(500, share=0.5) == 0


def test_small_batches_wait_when_the_cpu_is_short() -> None:
    machine = Machine()
    machine.commits(100, share=0.9)

    assert machine.commits(500, share=0.9) == 500


def test_a_batch_that_is_worth_its_commit_does_not_wait() -> None:
    machine = Machine()
    machine.commits(100, share=0.9)

    assert machine.commits(500, share=0.9, waiting=16) == 0


def test_waiting_that_brings_nobody_is_given_up_and_tried_now_and_then() -> None:
    machine = Machine()
    machine.commits(100, share=0.9)

    assert machine.commits(650, share=0.9, coming=0) == 10
    assert machine.commits(200, share=0.9, coming=3) > 130


def test_it_ends_with_the_strain() -> None:
    machine = Machine()
    machine.commits(100, share=0.9)
    machine.commits(100, share=0.1)

    assert machine.commits(100, share=0.1) == 0
