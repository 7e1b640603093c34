"""The simulator: thousands of nodes on a virtual clock, made of the same state machines as the service.

| module | what it holds |
|---|---|
| `options` | what is simulated, as data |
| `network` | virtual time, messages with latency and loss, who is dead, cut off, behind a NAT or hostile |
| `node` | one simulated node: table, peer memory, records, and how it answers |
| `walk` | a lookup of a simulated node from its first probe to its outcome |
| `population` | ids, addresses, places and tables of everybody at the start |
| `scenario` | one run: publish, look up evenly over the time, churn, kill |
| `gates`, `report` | what must hold, and how it is printed |
| `plot` | the optional picture |
| `run` | the whole command: the main scenario and the ones behind the gates |
"""
