"""svc-mailbox: the durable, at-least-once queue.

| module | what it holds |
|---|---|
| `config` | the `[mailbox]` table and the frozen options |
| `routes`, `bodies`, `stream` | HTTP to the contract and back |
| `api`, `authority` | the contract for other services; capability checks |
| `dispatcher`, `jobs` | contract values to jobs for the workers |
| `ids`, `rows`, `topics`, `batch`, `ledger`, `claims` | the values everything is made of; pure |
| `shard`, `window`, `eviction` | the state machine of a shard's messages, and what of it stays in RAM; pure |
| `mailroom` | what the workers share |
| `shard_worker`, `envelopes`, `loader`, `waiters` | the one who changes a shard, and how it answers, reads and waits |
| `writer` | the one writer: group commit |
| `visibility_scanner`, `reprocessor`, `retention`, `audit`, `rebalancer`, `cap_cache_refresher` | the agents beside them |
| `engines/` | where messages are kept |
| `service` | the only wiring |
"""
