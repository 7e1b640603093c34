"""The node's own services through the gateway: the same paths and bodies as at their own ports.

calling      from a request to a contract call: who asks, and with what right
downstream   what surrounds every call: a slot, a breaker, a deadline, retries, a hedge
fair_slots   the slots of a downstream, shared fairly between waiting tenants
boot         asks every service once at the start
mounted      every other route of the services of this process, under their own paths
signed       the SQS face of this process: its requests are signed, and it checks that itself
mailbox      svc-mailbox
passport     svc-passport
objects      svc-storage
dht          svc-dht
interop      svc-interop: webhooks, its inbox, puts and reads
views        views as data: which parts make one answer
view_routes  views over HTTP
hydration    makes one answer of several calls, each under its deadline
"""
