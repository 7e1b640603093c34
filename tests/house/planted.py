"""For each tidy rule, trees that it must find fault with; and one tree that all of them must leave alone."""

from __future__ import annotations

# Put together here, because this very file must not name them either.
_HOME = "/" + "home/ada"
_REGISTRY = "python" + "hosted.org"
_DOC = '"""What it is for."""\n'

GOOD = {
    "pyproject.toml": '[project.scripts]\npenstock = "penstock.cli:main"\n',
    "README.md": "# Penstock\n\nSee [the pages](docs/README.md), [a part](docs/README.md#two-words) and [all](docs).\n",
    "docs/README.md": "# Pages\n\n    # a comment in an example, no title\n\n## Two words\n\n[decisions](decisions) [map](ARCHITECTURE.md)\n",
    "docs/ARCHITECTURE.md": "# Architecture\n\n| `cli/`, `cli/commands` | the command line |\n",
    "docs/decisions/001-bash.md": "# Scripts are bash\n\n[out](https://example.org)\n",
    "changes/README.md": "# Changes\n",
    "changes/+redrive-by-id.feature.md": "`dlq redrive` takes ids.\n",
    "scripts/up": "#!/usr/bin/env bash\n# Run the node.\nset -euo pipefail\n",
    "src/penstock/__init__.py": '"""The product: `cli`, and `database`, `rows` and `sizes` below it."""\n',
    "src/penstock/cli/__init__.py": '"""Commands.\n\ncommands/  one a file\n"""\nfrom penstock.database import Row\n'
    'from penstock.sizes import LARGE\nCOMMANDS = {"token": ""}\n',
    "src/penstock/cli/commands/__init__.py": '"""One module a command.\n\ntoken  issue and verify\n"""\n',
    "src/penstock/cli/commands/token.py": _DOC,
    "src/penstock/database.py": _DOC + "from penstock.rows import Table\nclass Row(Table):\n    def __init__(self):\n"
    "        self.open = True\n    def close(self):\n        '''Nothing is open.'''\n",
    "src/penstock/rows.py": _DOC + "from abc import ABC\nclass Table(ABC):\n    x = 1\n",
    "src/penstock/sizes.py": '"""How large it may be. Pure."""\nimport math\nLARGE = math.inf\n',
    "tests/test_database.py": _DOC + "def test_row_closes():\n    assert Row().close() is None\n",
    "tests/test_words.py": _DOC + "def test_refuses():\n    with pytest.raises(ValueError):\n        parse('')\n",
}

HITS: dict[str, list[dict[str, str]]] = {
    "files_are_short": [{"src/penstock/long.py": _DOC + "x = 1\n" * 800}],
    "functions_are_short": [
        {"src/penstock/long.py": _DOC + "def f():\n" + "    x = 1\n" * 70},
        {"tests/test_long.py": _DOC + "async def f():\n" + "    x = 1\n" * 70},
    ],
    "modules_have_telling_names": [
        {"src/penstock/utils.py": _DOC},
        {"src/penstock/http_helpers.py": _DOC},
        {"src/penstock/common/parse.py": _DOC},
        {"tests/base.py": _DOC},
    ],
    "classes_have_telling_names": [{"src/penstock/x.py": _DOC + "class ConnectionManager: ...\n"}],
    "modules_have_docstrings": [{"src/penstock/x.py": "import os\n"}, {"tests/test_x.py": "# a comment\n"}],
    "tests_state_something": [
        {"tests/test_x.py": _DOC + "def test_runs():\n    run()\n"},
        {"tests/test_x.py": _DOC + "class TestX:\n    async def test_runs(self):\n        await run()\n"},
    ],
    "no_function_is_a_stub": [
        {"src/penstock/x.py": _DOC + "def f():\n    '''Do it.'''\n    pass\n"},
        {"src/penstock/x.py": _DOC + "def f():\n    raise NotImplementedError\n"},
    ],
    "no_test_uses_mocks": [
        {"tests/test_x.py": _DOC + "from unittest.mock import Mock\n"},
        {"tests/test_x.py": _DOC + "from unittest import mock\n"},
    ],
    "no_module_is_dead": [
        {"src/penstock/__init__.py": _DOC, "src/penstock/alone.py": _DOC},
        {"src/penstock/__init__.py": _DOC, "src/penstock/alone.py": _DOC + "import penstock.alone\n"},
        {"src/penstock/cli/__init__.py": _DOC + 'COMMANDS = {"up": ""}\n', "src/penstock/cli/down.py": _DOC},
        {"src/penstock/x.py": _DOC, "tests/test_x.py": _DOC + "import penstock.x\n"},
    ],
    "nothing_is_left_for_later": [
        {"src/penstock/x.py": _DOC + "# TODO: the rest\n"},
        {"docs/x.md": "# X\n\nFIXME\n"},
        {"scripts/x": "# XXX\n"},
    ],
    "no_path_of_one_machine": [
        {"docs/x.md": f"# X\n\nSee {_HOME}/penstock.\n"},
        {"src/penstock/x.py": _DOC + f'WHERE = "{_HOME}"\n'},
        {"requirements.lock": f"x @ file://{_HOME}/x\n"},
    ],
    "no_registry_is_named": [
        {"requirements.lock": "--index-url somewhere\n"},
        {"scripts/x": "pip install --extra-index-url x\n"},
        {"docs/x.md": f"from files.{_REGISTRY}\n"},
    ],
    "no_ticket_is_named": [
        {"docs/x.md": "# X\n\nFixed in issue #12.\n"},
        {"src/penstock/x.py": _DOC + "# see GH-77\n"},
        {"CHANGELOG.md": "# Changelog\n\n- faster (#4)\n"},
    ],
    "lines_end_clean": [{"docs/x.md": "# X \n"}, {"src/penstock/x.py": _DOC + "x = 1"}],
    "pages_have_one_title": [
        {"docs/x.md": "# One\n\n# Two\n"},
        {"docs/x.md": "## Part\n\n# Title\n"},
        {"docs/x.md": "No title.\n"},
        {"docs/x.md": "```\n# in code\n```\n"},
    ],
    "links_resolve": [
        {"docs/x.md": "# X\n\n[gone](gone.md)\n"},
        {"docs/x.md": "# X\n\n[part](#no-such-part)\n"},
        {"docs/x.md": "# X\n\n[part](y.md#z)\n", "docs/y.md": "# Y\n"},
    ],
    "pages_are_reachable": [{"docs/README.md": "# Pages\n", "docs/lost.md": "# Lost\n"}],
    "fragments_are_well_formed": [
        {"changes/12.feature.md": "It works.\n"},
        {"changes/+a.novelty.md": "It works.\n"},
        {"changes/+a.fix.md": "it works\n"},
        {"changes/+a.fix.md": "\n"},
        {"changes/+a.fix.md": "It works" + " well" * 200 + ".\n"},
    ],
    "scripts_are_short_and_strict": [
        {"scripts/x": "#!/bin/sh\n# Do it.\nset -euo pipefail\n"},
        {"scripts/x": "#!/usr/bin/env bash\nset -euo pipefail\n"},
        {".ci/run": "#!/usr/bin/env bash\n# Do it.\n"},
        {"scripts/x": "#!/usr/bin/env bash\n# Do it.\nset -euo pipefail\n" + "true\n" * 130},
    ],
    "modules_are_in_their_map": [
        {"src/penstock/__init__.py": '"""Holds `other`."""\n', "src/penstock/one.py": _DOC},
        {"src/penstock/__init__.py": '"""Holds one_more."""\n', "src/penstock/one.py": _DOC},
        {"src/penstock/__init__.py": _DOC, "src/penstock/sub/__init__.py": _DOC},
        {"src/penstock/__init__.py": _DOC, "src/penstock/__main__.py": _DOC},
    ],
    "maps_name_only_what_is_there": [
        {"src/penstock/sub/__init__.py": '"""Things.\n\none  the first\n"""\n'},
        {"src/penstock/sub/__init__.py": '"""Things.\n\none, two  both\n"""\n', "src/penstock/sub/one.py": _DOC},
    ],
    "packages_are_small": [{f"src/penstock/many/part_{number}.py": _DOC for number in range(31)}],
    "architecture_names_every_package": [
        {"src/penstock/sub/__init__.py": _DOC, "docs/ARCHITECTURE.md": "# Architecture\n\nsub is somewhere.\n"},
        {"src/penstock/sub/in/__init__.py": _DOC, "docs/ARCHITECTURE.md": "# Architecture\n\n`sub/`, `in/`\n"},
        {"src/penstock/sub/__init__.py": _DOC},
    ],
    "public_class_names_are_unique": [
        {"src/penstock/a.py": _DOC + "class Rule: ...\n", "src/penstock/b.py": _DOC + "class Rule: ...\n"}
    ],
    "glossary_names_exist": [{"docs/glossary.md": "# Glossary\n\n| `TokenRoot` | the first block |\n"}],
    "no_class_is_cut_in_halves": [
        {
            "src/penstock/x/reads.py": _DOC + "class Reads:\n    def read(self): return self._file\n",
            "src/penstock/x/engine.py": _DOC + "class Engine(Reads):\n    def __init__(self): self._file = 1\n",
        },
        {
            "src/penstock/x/reads.py": _DOC + "class _Reads:\n    def read(self): return self._file\n",
            "src/penstock/x/engine.py": _DOC + "class Engine(reads._Reads[int]):\n    y = 1\n",
        },
    ],
    "pure_modules_do_no_io": [
        {"src/penstock/x.py": '"""Decides. Pure."""\nimport time\n'},
        {"src/penstock/x.py": '"""Decides. Pure: takes now."""\ndef f():\n    from os import path\n'},
        {
            "src/penstock/x/__init__.py": '"""Decides. Pure."""\n',
            "src/penstock/x/y.py": _DOC + "import asyncio.tasks\n",
        },
    ],
    "lines_are_short": [
        {"src/penstock/x.py": _DOC + "# " + "long " * 24 + "\n"},
        {"tests/test_x.py": '"""' + "Long " * 24 + '."""\n'},
    ],
    "constructors_say_something_or_nothing": [
        {
            "src/penstock/x.py": _DOC
            + "class X:\n    def __init__(self):\n        '''Know nothing.'''\n        self.y = 1\n"
        }
    ],
}
