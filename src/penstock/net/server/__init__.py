"""The HTTP listener of a service: from an accepted socket to the bytes of the answer.

listener          binds, serves, drains, closes: the supervised child
listener_options  what can be set about a listener
listener_config   from the settings of a table to these options
accept            accepts TCP clients; a process out of descriptors leaves newcomers in the queue and counts it
tls_accept        accepts TLS clients: the place is taken at the accept, not after the handshake
bind              the listening sockets, or one sentence why not
unix              Unix sockets: modes, and the uid of the peer
tls               certificates and keys
caps              places for connections: in all, per address, reserved for the operator
connection        one connection: transport, turn and deadlines
inbox             what a client sends: bytes become requests; admission, bodies, requests held at a gate
outbox            what a client is owed: handlers are called, answers leave in the order of their requests
exchange          an admitted request whose answer is not written yet
body              bodies on their way in: collected, streamed, inflated or discarded
core              what all connections of one listener share
route             routes as data, and the table that finds one
endpoint          routes compiled for the hot path
admission         the hook at the end of the headers, and refusals as prebuilt bytes
stranger_quota    a quota for each address on requests that are answered 401
ticket            what a request holds at its listener's gate; nothing where there is none
pausing           a request that waits long gives its slot back meanwhile
answer            the bytes of an answer head
source            where the pieces of a streamed answer come from
wheel             the deadlines of all connections on one timer
pages             /healthz, /readyz, /version and /openapi.json
openapi           OpenAPI 3.1 from the routes
"""
