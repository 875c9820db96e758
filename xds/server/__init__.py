"""The side of xDS that touches the network: gRPC servers, who is at the other end, and the certificate authority.

Everything a proxy is told is decided elsewhere; a stream here only carries out what a session machine says. What the
server needs of its surroundings it declares as protocols (TokenReviewer, Admissions, Views, Records).
"""
