"""OAP/1 over sockets: framed calls between processes, by the pure codec of `wire.oap`.

connection  one connection, either end: framing, stream rules, deadlines, backpressure
client      the calling end: one connection, many calls, reconnect with backoff
calling     a dialled connection: calls out, answers matched by corr_id, events in
server      the endpoint of a service on a Unix socket or TCP
serving     an accepted connection: requests in, dispatch, answers out
service     what an endpoint serves and within which bounds
call        what a request carries around its value: deadline, corr_id, trace, origin
"""
