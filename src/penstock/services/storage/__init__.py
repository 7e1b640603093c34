"""svc-storage: bytes under the address that is their BLAKE3 digest.

| module | what it holds |
|---|---|
| `config` | the `[storage]` table and the frozen options |
| `routes` | HTTP to the store and back |
| `api`, `uploads`, `authority` | the contract for other services; capability checks |
| `store` | what routes and contract share: taking in, looking, reading |
| `incoming`, `ledger` | an object on its way in; how many bytes are stored and promised |
| `committer`, `keeper`, `reaper` | the agents: who makes objects visible, who opens and sweeps, who ends idle uploads |
| `manifest`, `draft` | the hashes of an object's leaves, bound to its address; pure |
| `engines/` | where objects are kept |
| `service` | the only wiring |
"""
