"""The model of the mesh as seen from home: networks, services, workloads and split horizon.

Pure derivations from facts, with no proxy in them. Each module declares its part of the graph in one function and hands
out the collections that later parts read; `aggregator.pipeline` puts them in order.
"""
