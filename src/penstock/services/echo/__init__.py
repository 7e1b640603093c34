"""svc-echo: the smallest complete service, on which every promise of the runtime can be tried out.

| module | what it holds |
|---|---|
| `config` | the frozen options |
| `routes` | HTTP to job and back; no decisions |
| `service` | the only wiring: channels, workers, listener, as child specs |
"""
