"""The process around the model: settings, records, logs, metrics, readiness, traces, and `main`, which joins all parts.

Only this package (and the CLI) may import the modules of watchers and xds that do I/O. Nothing in mesh, traffic,
security, views or graph imports it.
"""
