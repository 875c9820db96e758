"""The side of xDS that touches the network: gRPC servers, who is at the other end, and the certificate authority.

Everything a proxy is told is decided elsewhere; a stream here only carries out what a session machine says. What the
server needs of its surroundings it declares as protocols (TokenReviewer, Admissions, Views, Records).
"""

import os

# gRPC reads this once, when it is imported. By default threads of its own read sockets and hand what they read to the
# thread that waits for asyncio; without them that one reads by itself. A push and its answer, 400 and 60 bytes, take
# 176 us of CPU so, and 222 us by default (grpcio 1.85). Whoever sets the variable decides for himself.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
