"""The gRPC health protocol."""

from __future__ import annotations

import grpc
import pytest

from xds import protos
from xds.server.health import HealthService
from xds.server.refusals import Refusal

Response = protos.grpc.health.v1.HealthCheckResponse


def ask(health: HealthService, service: str = "") -> int:
    request = protos.grpc.health.v1.HealthCheckRequest(service=service)
    return Response.FromString(health.check(request.SerializeToString())).status


def test_serving_is_what_the_embedding_says() -> None:
    ready = False
    health = HealthService(lambda: ready, ["ads"])
    assert ask(health) == ask(health, "ads") == Response.NOT_SERVING
    ready = True
    assert ask(health) == ask(health, "ads") == Response.SERVING


def test_a_draining_server_is_not_serving() -> None:
    health = HealthService(lambda: True, [])
    health.draining = True
    assert ask(health) == Response.NOT_SERVING


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (protos.grpc.health.v1.HealthCheckRequest(service="other").SerializeToString(), grpc.StatusCode.NOT_FOUND),
        (b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_what_is_not_known_is_refused(message: bytes, code: grpc.StatusCode) -> None:
    with pytest.raises(Refusal) as caught:
        HealthService(lambda: True, ["ads"]).check(message)
    assert caught.value.code is code
