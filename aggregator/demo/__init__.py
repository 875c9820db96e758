"""The demo: two clusters on this machine's loopback, real control planes and Envoys, and a request through them.

Everything here is data and processes; what is shown, and how, is aggregator/cli/demo.py.
"""
