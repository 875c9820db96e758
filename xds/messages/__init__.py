"""Messages: what proxies are told, one frozen record and its encoder per module.

Made by whoever derives views of the mesh, carried by sessions as bytes. A module here knows the wire form of one
message and nothing about why it says what it says.
"""
