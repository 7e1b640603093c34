"""The node: builds the services, hangs them under one root supervisor, runs and ends the process.

build           a node from its settings: every service under one root supervisor
services        how each service is put together from the settings
part            one built service as the node holds it: supervision, addresses, answers
frames          a service's contract for other processes, over OAP/1
neighbours      the services behind a gateway, in the same process or in others
remote_admin    what an operator asks from elsewhere, through the gateway
trust_source    where a process gets the keys and revocations from that it trusts
data_dir        the data directory: one node at a time, the operator token, `run/ports.json`
data_dir_guard  ends a node whose data directory was moved or removed
port_owner      who listens on a port of this machine
preflight       looks at addresses and certificates before anything is written
process         the life of the process: loop, signals, start, ready, drain, exit code
service_notice  tells systemd how far the node is
config_watcher  the one place that reloads the configuration
bus_subscriber  what services say on the bus that concerns the whole node
bridge_neighbours  finds the services behind the bridge
dht_panels      what svc-dht adds to the operator's page
interop_panels  what svc-interop adds to the operator's page
webhook_signer  signs a webhook as its provider would, for trying an endpoint out
mailbox_page    what svc-mailbox adds to the page: figures, busiest topics, dead letters
gateway_page    what the gateway adds to it: routes and upstreams
topic_search    finds topics among all of a node, sorted by any figure
topic_lookup    one topic's settings and one message, null where there is none
passport_page   what svc-passport adds to it: narrowing and explaining tokens
storage_page    what svc-storage adds to it: how much is stored
otel            sends spans to an OpenTelemetry collector
panels          what single services add to the operator's page
tables          the generated tables of `docs/_generated`
concurrency     one generated page a service: its concurrency model
"""
