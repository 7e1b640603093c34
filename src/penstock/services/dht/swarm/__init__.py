"""The swarm: many real nodes on loopback in one process, to be killed, silenced and revived at will.

| module | what it holds |
|---|---|
| `options` | how many nodes, and what each may hold of the process's descriptors |
| `key` | one issuer, one token and one verifier for all nodes |
| `member` | one node: starting, killing, silencing, reviving |
| `swarm` | all of them: joining a few at a time, and the commands |
| `session` | the ready line, and commands read from standard input |
"""
