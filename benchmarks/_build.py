"""Which Python measured: its build moves every figure."""

from __future__ import annotations

import platform
import sysconfig


def python_build() -> str:
    """Name the Python and how it was built."""
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"{platform.python_version()}, {'with' if optimized else 'without'} --enable-optimizations"
