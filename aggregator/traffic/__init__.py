"""Traffic from outside the mesh: which hosts are served, by which rules, and where they lead.

Pure derivations from Ingresses to hosts and backends, with no proxy in them. Only home's objects count: another
cluster's Ingresses are that cluster's to serve. Each module declares its part of the graph in one function.
"""
