"""What `benchmarks.flood` asks of each port.

attacks   the light caller's request and the costliest anonymous request we know, for each port
dialling  a flood of connections, for the ports that speak frames instead of HTTP
"""
