"""Which locals of a suspended frame are bound.

The garbage collector lists the values of a suspended frame in order, but leaves unbound locals out without a trace.
So two frames at the same position with the same values might still differ in which names hold them. Asking the frame
is slow; mostly the position decides: if every local that can be bound there is bound, the number of values tells so.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, FrameType


def bound_names(frame: FrameType) -> tuple[str, bool]:
    """Name the bound locals; tell whether the same number of values at this position always means the same names."""
    code = frame.f_code
    values = frame.f_locals
    names = tuple(values)
    # The snapshot would keep the values alive after the frame has dropped them.
    if isinstance(values, dict):
        values.clear()
    perhaps = _perhaps_bound(code, frame.f_lasti)
    bound = perhaps.intersection(names)
    return ",".join(names), len(perhaps) <= 1 or not bound or bound == perhaps


@lru_cache(maxsize=4096)
def _perhaps_bound(code: CodeType, position: int) -> frozenset[str]:
    """List the locals, without the arguments, that some way to this position may have bound."""
    stores: dict[str, int] = {}
    reach = position
    deleted = False
    for step in dis.get_instructions(code):
        if step.opname == "STORE_FAST":
            stores.setdefault(step.argval, step.offset)
        elif step.opname == "DELETE_FAST":
            deleted = True
        elif "JUMP_BACKWARD" in step.opname and step.argval <= position < step.offset:
            # A loop around this position: what it binds further down may be bound in the next round.
            reach = max(reach, step.offset)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    every = frozenset(name for name, offset in stores.items() if offset < reach)
    # Where names are unbound again, even an argument may be missing.
    return every | frozenset(arguments) if deleted else every - frozenset(arguments)
