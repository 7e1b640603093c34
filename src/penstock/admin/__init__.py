"""The admin listener: node health, metrics, the live inventory, and the few things an operator may do.

| module | what it holds |
|---|---|
| `exposition` | the kernel's plain integers in Prometheus' text format |
| `authority` | who may look and act: the operator token |
| `routes` | what can be asked for |
| `service` | the wiring |
"""
