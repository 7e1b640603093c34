"""Search with several processes: `hash` with one table of states that all of them share.

The first process forks the others, so they have the program and everything it imported. Whoever has nothing to do
takes branches from a queue, into which another process puts half of what it has left. The table of states is shared
memory. Two processes that note the same state at the same instant both follow it, which costs time and
changes no verdict. So the verdict and the outcomes are the same as with one process; the figures may differ a little.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import queue
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.weave.hashing import HashSearch, Prefix
from penstock.weave.loop import Refused
from penstock.weave.outside import OutOfTime, alarm, apart, real_now
from penstock.weave.search import FailingSchedule, Found, Limit, Nondeterministic, Search

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext

    from penstock.weave.run import Program
    from penstock.weave.search import ExploreSettings

_PLACES = 1 << 21
_DIGEST_BYTES = 16
_PATIENCE_S = 0.02
_SHARE_EVERY = 8
_SHARE_MAX = 256

Branches = list[tuple[Prefix, int]]
"""Branches, each with how often it departs from asyncio's order."""


class StateTable:
    """A set of digests in memory that forked processes share; it never grows beyond its places."""

    def __init__(self, places: int = _PLACES) -> None:
        self._places = places
        self._memory = mmap.mmap(-1, places * _DIGEST_BYTES)

    def add(self, mark: bytes) -> bool:
        """Note a state; tell whether nobody has noted it before. A full table takes every state for new."""
        memory, places = self._memory, self._places
        at = int.from_bytes(mark[:8], "little") % places
        for _ in range(places // 2):
            start = at * _DIGEST_BYTES
            found = memory[start : start + _DIGEST_BYTES]
            if found == mark:
                return False
            if not any(found):
                memory[start : start + _DIGEST_BYTES] = mark
                return True
            at = (at + 1) % places
        return True


class SharedWork(NamedTuple):
    """The branches on their way from one process to another."""

    branches: Any
    idle: Any
    """How many processes wait for a branch."""
    given: Any
    """How many bunches of branches were given and not taken yet: a queue may look empty while one is on its way."""

    @staticmethod
    def add(counter: Any, amount: int) -> None:  # noqa: ANN401 of multiprocessing
        """Change a counter that all processes share."""
        with counter.get_lock():
            counter.value += amount

    def give(self, branches: Branches) -> None:
        """Give branches to whoever is free."""
        self.add(self.given, 1)
        self.branches.put(branches)


class JobResult(NamedTuple):
    """What one process has found."""

    schedules: int
    states: int
    steps: int
    outcomes: tuple[str, ...]
    failures: tuple[FailingSchedule, ...]
    reached: dict[str, bool]
    notes: tuple[str, ...]
    cut: str
    cpu_s: float


class SharedSearch(HashSearch):
    """One process of a shared search."""

    told = "hash"

    def __init__(self, table: StateTable, work: SharedWork, jobs: int) -> None:
        super().__init__()
        self._table = table
        self._work = work
        self._jobs = jobs

    def is_new(self, mark: bytes) -> bool:
        """Note a state in the table of all."""
        new = self._table.add(mark)
        if new:
            self.seen.add(mark)
        return new

    def serve(self, search: Search) -> None:
        """Work branches off until nobody has any left."""
        self._search = search
        while (taken := self._next()) is not None:
            for branch, level in taken:
                self.frontier.add(level, [branch])
            while self.frontier.count:
                self.work_off_some(_SHARE_EVERY)
                self._share()

    def _next(self) -> Branches | None:
        """Take branches from the queue; None when all processes wait and no branch is on its way."""
        work = self._work
        work.add(work.idle, 1)
        while True:
            try:
                taken: Branches = work.branches.get(timeout=_PATIENCE_S)
            except queue.Empty:
                if work.idle.value >= self._jobs and not work.given.value:
                    return None
                continue
            work.add(work.idle, -1)
            work.add(work.given, -1)
            return taken

    def _share(self) -> None:
        """Give half of the branches away while somebody waits for one."""
        work = self._work
        if work.idle.value > work.given.value and self.frontier.count > 1:
            work.give([self.frontier.pop() for _ in range(min(self.frontier.count // 2, _SHARE_MAX))])


def search_with_jobs(program: Program, settings: ExploreSettings, search: Search) -> str:
    """Explore with several processes; fill the account of `search`, and tell why the search was cut, if it was."""
    context: ForkContext = multiprocessing.get_context("fork")
    work = SharedWork(context.Queue(), context.Value("i", 0), context.Value("i", 0))
    table, results = StateTable(), context.Queue()
    work.give([(((), 0), 0)])
    processes = [
        context.Process(target=_serve, args=(program, settings, table, work, results), daemon=True)
        for _ in range(settings.jobs)
    ]
    for process in processes:
        process.start()
    found = [_add(search, result) for result in _gathered(processes, results, settings)]
    for process in processes:
        process.terminate() if search.failures and settings.until == "failure" else process.join(1.0)
        process.join(1.0)
    for channel in (work.branches, results):
        channel.close()
        channel.cancel_join_thread()
    return next(
        (cut for cut in found if cut), "" if len(found) == settings.jobs or search.failures else "a process died"
    )


def _gathered(processes: list[Any], results: Any, settings: ExploreSettings) -> list[JobResult]:  # noqa: ANN401
    """Wait for what each process found; the first failure is enough, if the settings say so."""
    gathered: list[JobResult] = []
    until = real_now() + (settings.seconds or 1e9) + 5.0
    while len(gathered) < len(processes) and real_now() < until:
        try:
            result: JobResult = results.get(timeout=0.1)
        except queue.Empty:
            if not any(process.is_alive() for process in processes) and results.empty():
                break
            continue
        gathered.append(result)
        if result.failures and settings.until == "failure":
            break
    return gathered


def _add(search: Search, result: JobResult) -> str:
    progress = search.progress
    progress.schedules += result.schedules
    progress.states += result.states
    progress.steps += result.steps
    search.outcomes |= dict.fromkeys(result.outcomes)
    search.failures += result.failures
    search.job_cpu_s.append(result.cpu_s)
    search.notes |= dict.fromkeys(result.notes)
    for name, hit in result.reached.items():
        search.reached[name] = search.reached.get(name, False) or hit
    return result.cut


def _serve(
    program: Program,
    settings: ExploreSettings,
    table: StateTable,
    work: SharedWork,
    results: Any,  # noqa: ANN401 of multiprocessing
) -> None:
    """Be one of the processes."""
    share = max(settings.schedules_max // settings.jobs, 1)
    search = Search(program, replace(settings, jobs=1, schedules_max=share, progress=None))
    worker = SharedSearch(table, work, settings.jobs)
    cut = ""
    began_s = time.process_time()
    with apart(), alarm(settings.seconds, search.expired):
        try:
            worker.serve(search)
        except Found:
            pass
        except (Limit, Refused, Nondeterministic) as why:
            cut = str(why)
        except OutOfTime:
            cut = f"cut after {settings.seconds} seconds"
    progress = search.progress
    results.put(
        JobResult(
            progress.schedules,
            len(worker.seen),
            progress.steps,
            tuple(search.outcomes),
            tuple(search.failures),
            dict(search.reached),
            tuple(search.notes),
            cut,
            time.process_time() - began_s,
        )
    )
    results.close()
    results.join_thread()
    os._exit(0)
