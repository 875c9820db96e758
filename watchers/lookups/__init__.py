"""Lookups: what is asked of others than API servers because the graph needs it.

The graph says by a Table what it wants to know; what is learned comes back as facts.
"""
