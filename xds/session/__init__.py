"""Sessions: the xDS protocol as pure state machines, one per stream, for both variants.

Requests, content and moments go in, actions come out; the server carries them out. No module here does I/O or knows the
time, so that every order of events can be tested.
"""
