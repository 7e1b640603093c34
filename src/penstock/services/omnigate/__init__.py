"""omnigate: fair admission in front of the node's services and of any HTTP service behind it.

service  the only wiring: child specs in start order
config   the `[omnigate]` table and the options read from it
gate/    admission: who may pass now, who waits, who is refused
fair/    fair sharing between classes and tenants. Pure
proxy/   configured routes: a streaming reverse proxy
own/     the node's own services through the gateway, and views made of several of them
agents/  the children beside the listener
"""
