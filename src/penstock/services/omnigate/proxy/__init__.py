"""Configured routes: a streaming reverse proxy in front of any HTTP service.

routes          the configured routes and what they share
live_routes     routes that an operator adds while the gateway runs
route_admin     what an operator asks of the routes
config          one configured route as data
call            one proxied request, from the callback that brought it to the answer
relay           an answer on its way to the client: whole, or streamed at its pace
headers         which header fields pass, in both directions
caller_headers  what an upstream is told about the caller
shares          how many connections of a route slow clients may hold
upstream        the upstreams of one route, each with its connections and breaker
"""
