"""The services. They know each other's contracts, and never import each other's modules.

omnigate/  the gateway: fair admission, quotas, a streaming reverse proxy, views
mailbox/   the durable, at-least-once queue
passport/  issues, verifies and revokes capability tokens
interop/   the bridge: webhooks verified at the edge, puts and reads
storage/   objects under their BLAKE3 digest
dht/       finds who provides a key, among nodes that come, go and lie
echo/      the smallest complete service: one route, one bounded channel, a worker pool
"""
