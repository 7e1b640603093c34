"""Fair sharing, free of clocks and I/O: who may wait, who is next, what it cost, how much may run at once.

chain     intrusive lists: anything leaves from the middle in one step
rounds    surplus round robin over flows, with debts in round buckets
queue     classes and tenants: places, slots, parking, settlement
costs     what a request is expected to cost, route by route
pace      how fast waiting requests get their turn, and what that means for the next one
limits    how many may run at once: fixed, or following latency
"""
