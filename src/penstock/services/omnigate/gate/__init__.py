"""Admission: quotas, class, fair queue, capability and policy, decided when the headers are complete.

gate     the decision, and what follows from it
ticket   what an admitted request holds until it ends
check    which token came, whether it is known, and whether it covers the request
quotas   token buckets: for all requests, for an address, for a capability
classes  traffic classes, and what the gate knows of a route
rules    which capability each route takes, and what kind of work it is
policy   ordered rules: the first that matches decides
"""
