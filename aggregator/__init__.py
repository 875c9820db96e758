"""The meaning of things: from the facts of all clusters to what every proxy is told.

Facts come in from `watchers`, resources go out to `xds`; between them lie pure derivations (mesh, traffic, security)
that know neither the form of a manifest nor that of a protobuf message. This is the only package that knows both
neighbours; neither of them knows it.
"""

__version__ = "0.1.0"
