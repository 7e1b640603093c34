"""The HTTP/1.1 client: how penstock calls somebody else over HTTP.

client          the client: one call or a stream, each under a deadline
call            one call as a value, and the bytes of its request head
origin          where a call goes: scheme, host, port, target
downstream      one origin: its pool, its breaker, its retry budget, and one try of a call
pool            the connections to one origin: bounded, with a bounded queue for them
connection      one connection: at most one call on it, by a task or without one
inbox           the answer a connection is receiving: parsed and not yet taken
outbox          how a connection writes a request, at the peer's pace
waiting         how the tasks of a call wait for its connection
plan            whether a call is tried again, hedged, waited for or given up, as a pure decision
retry           what an HTTP call's outcome means for its plan
hedge           when a second request is worth its cost
drive_task      performs a plan in the task of its caller
drive_callback  performs a plan without a task, in callbacks
answer          what a caller gets back: a whole answer or a stream
"""
