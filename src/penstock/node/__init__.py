"""The node: builds the services, hangs them under one root supervisor, runs and ends the process.

| module | what it holds |
|---|---|
| `build` | settings to services; the only place that knows all of them |
| `data_dir` | one node a directory, the operator token, `run/ports.json` |
| `process` | the life of the process: loop, signals, start, ready, drain, exit code |
| `tables` | the generated tables of `docs/_generated` |
"""
