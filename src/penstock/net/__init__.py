"""Sockets: the HTTP server and client, the frame endpoint between processes. Every wait here has a deadline.

server/  the HTTP listener: accepts connections, routes requests, admits or refuses them, writes answers
calls/   the HTTP client: pooled connections, deadlines, retries within a budget
oap/     OAP/1, the framed protocol between processes: both ends
message  what a handler sees of a request, and what it may return
tracing  spans of requests and calls, for OpenTelemetry; nothing is made without an exporter
promise  an answer that comes later and is written in the callback that brings it
advice   what a caller can do about an error
problem  errors as RFC 9457 problem details
bearer   reads the token out of `Authorization: Bearer`
caller   who asks: what of a request travels with the contract call behind its route
corr_id  correlation ids: the caller's, or a new UUIDv7
hosts    Host and Origin rules
peer     who is at the other end of a transport
"""
