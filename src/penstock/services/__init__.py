"""The services. Each is a stranger to the others: they know contracts, never one another's modules.

| service | what it is |
|---|---|
| `echo` | the smallest complete service: one route, one bounded channel, a worker pool |
"""
