"""`dataclass` as in the standard library, but its methods are made when they are first called.

The standard library writes and compiles up to six methods for every class when its module is imported, which takes
more than half a millisecond. A node imports well over a hundred such classes, constructs some of them and compares
hardly any: that was a quarter of its start. Here a class gets its slots and its guards when it is defined.
`__init__`, `__repr__`, `__eq__` and `__hash__` stand there as placeholders; the first call makes the method, puts it
on the class and calls it, so that the second call costs what it always did. Two threads that make the same method at
once make equal ones.

The standard library still makes all but `__init__`, on a twin: a class of the same shape that is used for nothing else.
`fields`, `replace`, `asdict`, `match` and `inspect.signature` find what they look for.

late         what a class gets when it is defined, and how its methods are made later
constructor  the text of a constructor, from the fields of a class
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 14):
    # From 3.14 on annotations are kept in another way; and type checkers know the standard library's alone.
    from dataclasses import dataclass
else:
    from penstock.kernel.dataclass.late import define

    def dataclass(cls=None, /, **options):  # noqa: ANN001, ANN003, ANN201 - type checkers see the standard library's
        """Make a class with fields; takes `frozen`, `slots`, `kw_only`, `eq` and `repr`."""
        return define(cls, options) if cls is not None else lambda body: define(body, options)


__all__ = ["dataclass"]
