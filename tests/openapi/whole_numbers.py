"""What schemathesis generates, written as clients write it: a whole number has no decimal point.

To JSON Schema 3.0 is an integer; the services refuse it, as a number of another kind.
"""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def map_body(_context: schemathesis.HookContext, body: Any) -> Any:
    """Write 3.0 as 3, however deep it stands."""
    return _whole(body)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
