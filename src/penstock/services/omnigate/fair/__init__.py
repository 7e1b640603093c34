"""Fair sharing between classes and tenants: who may wait, who runs next, what it cost, how many run at once. Pure.

queue   the fair queue: places, slots, parking, and the charge for what a request really cost
entry   what waits, runs or is parked, and for whom: entries, tenants, classes
rounds  surplus round robin over flows; a flow in debt is filed under a later round
chain   intrusive linked lists: an element leaves from the middle in one step
costs   what a request is expected to cost, route by route
pace    how fast waiting requests get their turn, and how long the next one will wait
limits  how many may run at once: a fixed number, or one that follows latency
"""
