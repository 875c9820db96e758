"""How gRPC reads sockets, which it is told once: when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

PRINT_WHEN_IMPORTED = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_EXPERIMENTS"))

sys.meta_path.insert(0, Watch())
import xds.server.listener
"""


def told(**environment: str) -> str:
    """What gRPC finds in its environment when the server imports it."""
    inherited = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    ran = subprocess.run(
        [sys.executable, "-c", PRINT_WHEN_IMPORTED],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stdout.strip()


def test_grpc_is_told_to_read_without_threads_of_its_own_before_it_is_imported() -> None:
    assert told() == "-event_engine_listener"


def test_what_the_operator_tells_grpc_holds() -> None:
    assert told(GRPC_EXPERIMENTS="tcp_frame_size_tuning") == "tcp_frame_size_tuning"
