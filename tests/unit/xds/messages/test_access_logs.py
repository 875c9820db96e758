"""Where gateways write what they have done: only where they are told to, and in one form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import golden
from xds.messages import connect_terminate, http_connection_manager
from xds.messages.filters import access_logs
from xds.messages.listener import LISTENER_TYPE, Listener, encode_listener


def shown(file: str) -> list[dict[str, Any]]:
    """The access logs of a listener that writes to `file`."""
    listener = Listener("x", (), access_logs=access_logs(file, {"code": "%RESPONSE_CODE%"}))
    found: list[dict[str, Any]] = golden.decode(LISTENER_TYPE, encode_listener(listener).data).get("access_log", [])
    return found


def test_no_file_is_no_access_log() -> None:
    assert shown("") == []


@pytest.mark.parametrize(
    ("file", "logger", "path"),
    [("/dev/stdout", "stream.v3.StdoutAccessLog", None), ("/var/log/envoy", "file.v3.FileAccessLog", "/var/log/envoy")],
)
def test_standard_output_has_a_logger_of_its_own(file: str, logger: str, path: str | None) -> None:
    (log,) = shown(file)
    config = log["typed_config"]
    assert config["@type"] == f"type.googleapis.com/envoy.extensions.access_loggers.{logger}"
    assert config.get("path") == path
    assert config["log_format"] == {"json_format": {"code": "%RESPONSE_CODE%"}}


def test_times_and_events_are_told_alike_by_all_gateways() -> None:
    for fields in (connect_terminate.LOGGED, http_connection_manager.LOGGED):
        assert fields["start"] == "%START_TIME(%s.%6f)%"
        assert fields["event"] == "%ACCESS_LOG_TYPE%"
