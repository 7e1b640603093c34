"""The options that lead to settings, shared by the commands that need a configuration."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import (
    CommandFlag,
    ConfigFaults,
    Sources,
    env_name,
    load,
)
from penstock.config.faults import Fault, Layer, ValueOrigin
from penstock.config.kinds import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.config import Schema, Settings

BAD_CONFIG = 2


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file (TOML)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set one key; repeatable")
    parser.add_argument("--data-dir", metavar="DIR", help="where the node keeps its data (default ./.penstock)")
    parser.add_argument("--profile", metavar="NAME", help="micro (one process) or macro")
    parser.add_argument("--amnesia", action="store_true", help="keep everything in RAM and write no file")
    parser.add_argument("--port-base", metavar="N", help="move all ports, keeping their offsets from 5300")
    parser.add_argument("--insecure-dev", action="store_true", help="turn token checks off; loopback addresses only")
    parser.add_argument("--ephemeral-ports", action="store_true", help="let the system choose every port")


_FLAGS = {
    "data_dir": "node.data_dir",
    "profile": "node.profile",
    "amnesia": "node.amnesia",
    "port_base": "node.port_base",
    "ephemeral_ports": "node.ephemeral_ports",
    "insecure_dev": "node.insecure_dev",
}


def sources(args: argparse.Namespace) -> Sources:
    """Collect what was given on the command line, in the environment and in the file."""
    flags = tuple(
        CommandFlag("--" + option.replace("_", "-"), key, "true" if value is True else str(value))
        for option, key in _FLAGS.items()
        if (value := getattr(args, option)) not in (None, False)
    )
    return Sources(file=args.config, environ=dict(os.environ), flags=flags, sets=tuple(args.set))


def _refuse_shown_secrets(schema: Schema, sets: Iterable[str]) -> None:
    """Refuse a secret on the command line: every user of the machine can read it in the list of processes."""
    faults = []
    for written in sets:
        name, equals, _ = written.partition("=")
        slot = schema.find(name.strip())
        if equals and slot is not None and slot.key.secret and slot.part == "value":
            rule = (
                "a secret is not taken from the command line, where other users can see it: name a file that holds it"
                f" (--set {name.strip()}_file=PATH), or set {env_name(name.strip())} in the environment"
            )
            faults.append(Fault(name.strip(), REDACTED, ValueOrigin(Layer.SET, "--set"), rule))
    if faults:
        raise ConfigFaults(faults)


def load_or_explain(schema: Schema, given: Sources, *, as_json: bool = False) -> Settings | None:
    """Load the settings, or say everything that is wrong with them and return None."""
    try:
        _refuse_shown_secrets(schema, given.sets)
        return load(schema, given)
    except ConfigFaults as faults:
        if as_json:
            told = {"code": "malformed", "detail": str(faults), "faults": [fault.plain() for fault in faults.faults]}
            sys.stdout.write(json.dumps({"error": told}) + "\n")
            sys.stdout.flush()
        sys.stderr.write(f"{faults}\n")
        return None
