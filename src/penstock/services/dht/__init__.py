"""svc-dht: find who provides a key, fast, under churn and attack.

| module | what it holds |
|---|---|
| `core/` | the decisions, free of I/O: table, lookup, records, diversity, size, republishing, readiness |
| `protocol/` | what peers say to each other, as bytes |
| `peers/` | connections to other nodes: proven once, used both ways |
| `agents/` | the agents, one a file: writers, keeper, pinger, republisher, bootstrapper, lookup workers |
| `state` | what the agents of one node share, with the one writer of each part |
| `events` | what happened, for the page and the log |
| `config` | the `[dht]` table and the frozen options |
| `api`, `authority`, `routes`, `status` | the contract, capability checks, HTTP, and what the admin routes show |
| `sim/` | the simulator on the same state machines |
| `swarm/` | many real nodes in one process |
| `service` | the only wiring |
"""
