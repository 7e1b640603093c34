"""Which Python measured: its build moves every figure by up to a third."""

from __future__ import annotations

import platform
import sysconfig


def python_build() -> str:
    """Name the Python and how it was built."""
    return f"{platform.python_version()}, {_kind()}"


def _kind() -> str:
    # Debian optimizes its build with profiles too, but by its own rules, which the interpreter does not remember.
    if "deb_system" in sysconfig.get_scheme_names():
        return "Debian's optimized build"
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"{'with' if optimized else 'without'} --enable-optimizations"
