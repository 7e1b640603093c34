"""The concurrency rules as a checker for anyone's Python code; standard library only.

cli       arguments in, exit code out
config    `[tool.penstock.lint]`: paths, allowances with reasons, what the project declares about its calls
runner    from paths to findings
walker    one walk over a file
site      what a rule may know about the place it looks at
names     which import, class or constructor an expression refers to
reach     which private functions are entered only inside a deadline
rules/    the rules, one module a concern; a check's docstring is its page in `--explain`
waivers   `# lint: allow CODE reason`
report    text, JSON and statistics
finding   what a rule is, and what it reports
__main__  `python -m penstock.lint`
"""

from __future__ import annotations

from penstock.lint.cli import main

__all__ = ["main"]
