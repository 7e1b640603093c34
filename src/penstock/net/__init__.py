"""Sockets: whatever happens here has a deadline in hand.

message, route, problem         what a handler sees, what it is found by, how an error looks
listener, listener_options      binding, drain, the whole life as a supervised child
connection, requests, answers   one connection: transport and deadlines; heads to handlers; answers in order
exchange, body                  one unanswered request; a body on its way in
core, endpoint, admission       what all connections of a listener share; compiled routes; prebuilt refusals
answer, corr_id, hosts          bytes of an answer; correlation ids; Host and Origin rules
wheel, caps, peer, tls          deadlines without a timer each; places; who is there; certificates
own_pages                    /healthz, /readyz, /version
client*, openapi                the HTTP client; the description of routes
oap_*                           the frame endpoint between processes
"""
