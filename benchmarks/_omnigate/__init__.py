"""Parts of the omnigate benchmark: the gateways, their upstreams, and the load."""
