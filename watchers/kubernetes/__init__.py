"""Clusters read through their Kubernetes API: credentials, requests, and lists and watches that never end.

`kubeconfig` says what may be dialled and with which credential, `session` speaks HTTP, `events` reads what comes back,
`listwatch` decides without any I/O what to ask next, and `reflector` drives it for one kind of
objects and writes facts.
"""
