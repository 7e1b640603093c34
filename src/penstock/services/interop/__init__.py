"""svc-interop: the outside world, verified at the edge.

| module | what it holds |
|---|---|
| `providers` | one check for each kind of webhook sender; pure |
"""
