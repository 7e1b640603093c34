"""Every schedule of small asyncio programs.

explore      try every schedule, report, replay one: `explore`, `check`, `check_drawn`, `replay`
search       the settings and the account of one exploration
strategies   the strategies by name; delay bounding and random schedules
dpor         one schedule for each order of steps that touch something in common
tracking     which shared objects a step touches: `Cell`
sharing      what tasks share out of sight
hashing      depth first with pruning of states seen before
jobs         the same with several processes
fingerprint  what makes two states equal
frames       which locals of a suspended frame are bound
globals      module state that outlives a run
loop         the loop that is driven step by step
run          one schedule, and the judgement on it
promises     what a program promises: `always`, `sometimes`, `eventually`; `event`, `view`, `still`
outside      keeps a run apart from the world
shrink       the fewest departures from asyncio's order
token        schedules as short texts
trace        schedules told step by step
report       what was found
load         find a program by file and name
plugin       the pytest mark
values       TLA+ values as Python values
tlc          run TLC, and read the state graph it dumps
refine       hold real code to a TLA+ specification, in every schedule: `Refinement`
"""

from __future__ import annotations

from penstock.weave.explore import check, check_drawn, explore, replay
from penstock.weave.promises import always, event, eventually, shown, sometimes, still, view
from penstock.weave.refine import Refinement
from penstock.weave.report import WeaveFailure, WeaveReport
from penstock.weave.search import BadOption
from penstock.weave.token import BadToken
from penstock.weave.tracking import Cell

__all__ = [
    "BadOption",
    "BadToken",
    "Cell",
    "Refinement",
    "WeaveFailure",
    "WeaveReport",
    "always",
    "check",
    "check_drawn",
    "event",
    "eventually",
    "explore",
    "replay",
    "shown",
    "sometimes",
    "still",
    "view",
]
