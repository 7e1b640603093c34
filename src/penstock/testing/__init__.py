"""The test kit: virtual time, faults on demand, and nothing left behind.

loop       the virtual-time loop: `VirtualLoop`, with a choice of the next step; `Deadlock`, `Livelock`
session    run coroutines on one loop and find what they left: `Session`, `run`
plugin     the pytest plugin: async tests and fixtures on virtual time, `@pytest.mark.real_loop`
leaks      what must be closed when a test ends: `track`
stacks     where a suspended task waits
sweep      cancel or crash a task before every step of a run: `sweep`
transport  two protocols joined in memory: `memory_pair`
line       what may happen to their bytes: `Weather`
disk       a small file layer with real files: `Disk`, `RealDisk`
simdisk    the same on a disk that can lose power: `SimDisk`
faults     named fault points: `strikes`, `simulation`
fakes      a clock, a generator, a scripted downstream
waiting    wait for what nobody announces, within a limit: `until`, `wait_until`
contracts/ whole services in RAM behind their contracts
"""

from __future__ import annotations

from penstock.testing.disk import Disk, DiskFile, RealDisk
from penstock.testing.fakes import ScriptedDownstream, ScriptedRandom, VirtualClock
from penstock.testing.faults import Faults, simulation, strikes
from penstock.testing.leaks import Finding, Leaks, track
from penstock.testing.line import Line, Weather
from penstock.testing.loop import Deadlock, Livelock, VirtualLoop
from penstock.testing.session import Session, Watchdog, run
from penstock.testing.simdisk import SimDisk
from penstock.testing.sweep import Crash, Run, SweepFailure, sweep
from penstock.testing.transport import MemoryTransport, memory_pair
from penstock.testing.waiting import until, wait_until

__all__ = [
    "Crash",
    "Deadlock",
    "Disk",
    "DiskFile",
    "Faults",
    "Finding",
    "Leaks",
    "Line",
    "Livelock",
    "MemoryTransport",
    "RealDisk",
    "Run",
    "ScriptedDownstream",
    "ScriptedRandom",
    "Session",
    "SimDisk",
    "SweepFailure",
    "VirtualClock",
    "VirtualLoop",
    "Watchdog",
    "Weather",
    "memory_pair",
    "run",
    "simulation",
    "strikes",
    "sweep",
    "track",
    "until",
    "wait_until",
]
