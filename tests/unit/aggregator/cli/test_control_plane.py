from __future__ import annotations

import socket

import pytest

from aggregator.cli.control_plane import AdminPort, AdminPorts, InvalidAddress, admin_port


@pytest.mark.parametrize(
    ("text", "host", "port", "secure", "path"),
    [
        ("127.0.0.1:15014", "127.0.0.1", 15014, False, ""),
        ("isthmus.istio-system.svc:15014", "isthmus.istio-system.svc", 15014, False, ""),
        ("[::1]:15014", "::1", 15014, False, ""),
        ("0.0.0.0:15014", "127.0.0.1", 15014, False, ""),
        ("[::]:15014", "::1", 15014, False, ""),
        ("http://localhost:8001/api/v1/proxy/", "localhost", 8001, False, "/api/v1/proxy"),
        ("https://isthmus.example.org", "isthmus.example.org", 443, True, ""),
    ],
)
def test_an_address_is_host_and_port_or_a_url(text: str, host: str, port: int, secure: bool, path: str) -> None:
    assert admin_port(text) == AdminPort(text, host, port, secure, path)


@pytest.mark.parametrize(
    "text", ["", "localhost", ":15014", "localhost:0", "localhost:99999", "ftp://x:1", "http://u:p@x:1", "[::1:15014"]
)
def test_what_is_no_address_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(InvalidAddress, match=r"write HOST:PORT or a URL, such as 127\.0\.0\.1:15014$"):
        admin_port(text)


def test_where_nobody_listens_the_answer_is_a_problem_with_its_cure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
    (answer,) = AdminPorts([admin_port(place)], timeout=5).ask("/clusters")
    assert (answer.where, answer.status) == (place, 0)
    assert answer.problem.startswith(f"no control plane answers at {place}: Connection refused; ")


def test_one_that_says_nothing_is_waited_for_no_longer_than_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        (answer,) = AdminPorts([admin_port(place)], timeout=0.05).ask("/clusters")
    assert answer.problem.startswith(f"no answer from {place} within 0.05 s; ")
