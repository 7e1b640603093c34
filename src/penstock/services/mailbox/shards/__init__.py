"""The messages of the mailbox in RAM. The loop owns them: any synchronous step may change them.

| module | what it holds |
|---|---|
| `topics` | a topic, its lanes and key queues, a message in RAM, rates; pure |
| `topic_names` | the names of all topics, in order, for pages of them; pure |
| `shard` | what may happen to a shard's messages: lease, settle, lapse, expire, purge; pure |
| `window` | which messages of a shard are in RAM, and where each stands; pure |
| `busiest` | the busiest topics with their counts and rates, at most 200; pure |
| `backlog` | whether a queue has more on the disk; pure |
| `eviction` | which messages leave RAM when it is full; pure |
| `reading` | what shards ask to be read, and how it gets back into them |
"""
