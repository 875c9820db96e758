from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aggregator.demo.ports import Taken, check_free, only_one
from aggregator.operate.bootstrap import SocketAddress


@pytest.mark.parametrize("host", ["127.0.0.9", "0.0.0.0"])
def test_who_listens_on_an_address_is_named_with_the_way_to_end_it(host: str) -> None:
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            Taken, match=rf"127\.0\.0\.9:{port} is taken by process {os.getpid()} .*`kill {os.getpid()}`"
        ):
            check_free([SocketAddress("127.0.0.9", port)])


def test_an_address_is_free_on_one_host_while_it_is_taken_on_another() -> None:
    with socket.create_server(("127.0.0.8", 0)) as taken:
        check_free([SocketAddress("127.0.0.9", taken.getsockname()[1])])


def test_an_address_this_machine_does_not_have_is_no_use() -> None:
    with pytest.raises(Taken, match=r"192\.0\.2\.1:80 cannot be used: Cannot assign requested address"):
        check_free([SocketAddress("192.0.2.1", 80)])


def test_two_demos_do_not_run_at_once_and_the_first_is_named(tmp_path: Path) -> None:
    with (
        only_one(tmp_path / "lock"),
        pytest.raises(Taken, match=f"as process {os.getpid()};"),
        only_one(tmp_path / "lock"),
    ):
        pass
    with only_one(tmp_path / "lock"):
        pass


def test_a_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from aggregator.demo.ports import only_one\n"
    script += "with only_one(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "lock"], check=False)
    assert done.returncode == -9
    with only_one(tmp_path / "lock"):
        pass
