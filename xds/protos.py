"""The door to protobuf: every message class and enum of the product, named as in its `.proto` file.

`protos.istio.workload.Address`, `protos.envoy.config.cluster.v3.Cluster`, `protos.google.protobuf.Any`; enums as
`protos.istio.workload.TunnelProtocol` and their values as `protos.istio.workload.HBONE`. For json_format and
text_format, which look types up, there is `POOL`; for a type URL, `message_class`. The build writes the types of all
this to `protos.pyi`. Importing it raises ImportError when protobuf lacks its fast backend or the build has not run.
"""

from __future__ import annotations

from xds.descriptors import POOL, message_class, top_level

__all__ = ["POOL", "message_class"]

globals().update(top_level())
