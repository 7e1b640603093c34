"""svc-dht."""
