"""svc-mailbox: the durable, at-least-once queue.

The way of a send: `routes` reads the request and asks `authority`; `dispatch` checks the message, makes a job and puts
it into the `work` channel of its shard; the `shard_worker` takes it and, through `intake`, puts its row into the open
batch of the `writer`; the `commit_loop` has the batch committed by the engine, gives the message to its `shard` and
answers. A receive ends one step earlier: the worker leases what the shard has, and `deliveries` answers.

Who owns what: the `state` belongs to the loop, and any synchronous step may change it; the open batch and the writing
thread belong to the `writer`; what a commit changes is applied by the `commit_loop` alone.

| module | what it holds |
|---|---|
| `service` | the only wiring: parts, channels, child specs in start order |
| `config` | the `[mailbox]` table and the frozen options |
| `routes` | HTTP to the contract and back |
| `bodies` | request bodies whose HTTP form differs from the contract's; pure |
| `stream` | the answer of `/v1/recv/stream`, and its credit |
| `api` | the contract for other services and the framed protocol |
| `topic_admin` | what an operator does to a whole topic: settings, purge, delete |
| `authority` | capability checks |
| `dispatch` | contract values to jobs, jobs to workers; wakes workers |
| `jobs` | what crosses the `work` channel, each with its answer |
| `codec` | how answers are written: as values or as JSON |
| `state` | all state in RAM, who owns it, and how it is rebuilt; the parts that workers and agents are given |
| `ledger` | counts and bounds over all shards, topics, cached payloads, leases still to be written; pure |
| `shards/` | the messages in RAM: what may happen to them, and what is read from and left on the disk |
| `claims` | which idem_keys are taken, in one ledger for each window; pure |
| `dead_remover` | removes dead letters that the operator does not want |
| `redrive_guard` | dead letters that are being moved; pure |
| `shares` | which tenants are above their share of the backlog or of the idem_keys; pure |
| `rows` | what is stored of a message; pure |
| `ids` | slots, msg_ids and receipts; pure |
| `steady_clock` | wall time for what is stored, without the steps of the system's clock; pure |
| `batch` | what one commit writes and what follows it; `Committed`; pure |
| `shard_worker` | the agent that does the jobs of its shards |
| `intake` | its sending side: claims and rows |
| `deliveries` | its answers to receivers |
| `disk_waits` | its tasks that wait for the disk |
| `waiters` | receivers that wait for a message |
| `writer` | the open batch and the group commit |
| `commit_loop` | the agent that has batches committed and applies them |
| `engine_reader` | asks the engine for what is not in RAM; reports damage |
| `tracing` | what the mailbox tells a tracer: commits, deliveries with links to their senders |
| `agents/` | beside the workers: scanner, reprocessor, mover, checkpointer, retention, rebalancer, refresher |
| `engines/` | where messages are kept |
"""
