"""svc-storage: bytes under the address that is their BLAKE3 digest.

| module | what it holds |
|---|---|
| `config` | the `[storage]` table and the frozen options |
| `routes` | HTTP to the store and back |
| `api` | the contract for other services and the framed protocol |
| `uploads` | objects that come in pieces over the contract |
| `authority` | capability checks |
| `store` | what routes and contract share: taking in, looking, reading |
| `incoming` | an object on its way in, piece by piece |
| `packed_put` | a small object on its way into a pack, and its answer |
| `reading` | an object on its way out |
| `ledger` | how many bytes are stored and promised; pure |
| `index` | which small objects there are, and where each lies; pure |
| `pack_format` | how small objects lie together in a pack; pure |
| `manifest` | the digests of a large object's leaves, bound to its address; pure |
| `temporary_object` | a large object being written: its digests so far |
| `store_owner` | the agent that opens the engine, closes it and removes what was given up |
| `pack_writer` | the agent that makes small objects durable, many with one sync |
| `committer` | the agents that make large objects visible |
| `reaper` | the agent that ends uploads nobody goes on with |
| `engines/` | where objects are kept |
| `service` | the only wiring |
"""
