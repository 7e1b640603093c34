"""svc-echo: the smallest complete service, on which every promise of the runtime can be tried out.

service  the only wiring: channels, workers, listener, as child specs
routes   from HTTP to a job and back; no decisions
config   the frozen options
"""
