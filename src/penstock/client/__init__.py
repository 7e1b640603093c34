"""The public name of the Python SDK: programs import from here, the code lies in `penstock.sdk`.

sync    the same without asyncio
"""

from __future__ import annotations

from penstock.sdk import *  # noqa: F403 - the whole SDK under its public name
from penstock.sdk import __all__ as __all__
