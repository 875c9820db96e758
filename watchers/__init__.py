"""The clusters: brings their objects in as facts.

A source (a directory, later an API server) is decoded into frozen records that carry only the fields the product
uses, and written to a table that the embedding gives. What a fact means is not judged here, and nothing of
`aggregator` or `xds` is imported.
"""
