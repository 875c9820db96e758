"""What an Envoy would take of a resource: the rules of its API that the encoders here are answerable for.

Goes through a message and all in it, and fails on the first part that an Envoy refuses, and with it the whole resource.
The rules are those of the validation that stands in Envoy's .proto files, and of what it does with texts after that:
regular expressions are compiled, values of headers are format strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from aggregator.traffic import path_regexes
from xds import protos
from xds.messages.fallback import AGAIN_CLIENT

if TYPE_CHECKING:
    from google.protobuf.message import Message

_BROKEN: Final = re.compile(r"[\x00\r\n]")
_NAME: Final = re.compile(r":?[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def acceptable(message: Message) -> None:
    """Fails if an Envoy refuses the message."""
    for one in _all(message):
        check = _CHECKS.get(one.DESCRIPTOR.full_name)
        if check is not None:
            check(one)


def _all(message: Message) -> Iterator[Any]:
    """A message, and all messages in it, also those packed as extensions."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values: Any = [one for one in value.values() if hasattr(one, "DESCRIPTOR")]
        else:
            values = value if field.is_repeated else [value]
        for one in values:
            if one.DESCRIPTOR.full_name == "google.protobuf.Any":
                packed = protos.message_class(one.type_url.rpartition("/")[2])()
                packed.ParseFromString(one.value)
                yield from _all(packed)
            else:
                yield from _all(one)


def _regex(one: Any) -> None:
    assert one.regex
    assert path_regexes.refused(one.regex) == ""


def _substitution(one: Any) -> None:
    assert not _BROKEN.search(one.substitution)
    import re2

    groups = re2.compile(one.pattern.regex).groups
    for escaped in re.findall(r"\\(.|$)", one.substitution):
        assert escaped == "\\" or (escaped.isdigit() and int(escaped) <= groups), one.substitution


def _header_value(one: Any) -> None:
    assert _NAME.fullmatch(one.key)
    assert not one.key.startswith(":")
    assert one.key.lower() != "host"
    assert len(one.value) <= 16384
    assert not _BROKEN.search(one.value)


def _format(one: Any) -> None:
    if one.header.key == AGAIN_CLIENT:  # whose value is no Ingress's
        return
    assert "%" not in one.header.value.replace("%%", "")


def _route(one: Any) -> None:
    assert one.name
    assert one.WhichOneof("action")
    assert one.match.WhichOneof("path_specifier")
    for name in (*one.request_headers_to_remove, *one.response_headers_to_remove):
        assert _NAME.fullmatch(name)
        assert not name.startswith(":")
        assert name.lower() != "host"
    for option in (*one.request_headers_to_add, *one.response_headers_to_add):
        _format(option)
    assert all(one.typed_per_filter_config)


def _match(one: Any) -> None:
    if one.WhichOneof("path_specifier") == "path_separated_prefix":
        assert re.fullmatch(r"[^?#]+[^?#/]", one.path_separated_prefix)


def _action(one: Any) -> None:
    assert one.WhichOneof("cluster_specifier")
    assert one.cluster or one.weighted_clusters.clusters
    assert not _BROKEN.search(one.host_rewrite_literal)
    assert sum(bool(rewrite) for rewrite in (one.prefix_rewrite, one.HasField("regex_rewrite"))) <= 1


def _weights(one: Any) -> None:
    assert one.clusters
    assert 0 < sum(cluster.weight.value for cluster in one.clusters) < 1 << 32
    assert all(cluster.name for cluster in one.clusters)


def _redirect(one: Any) -> None:
    for text in (one.host_redirect, one.path_redirect, one.scheme_redirect):
        assert not _BROKEN.search(text)
    assert one.port_redirect <= 65535
    assert one.response_code in range(5)


def _header_match(one: Any) -> None:
    assert _NAME.fullmatch(one.name)


def _query_match(one: Any) -> None:
    assert 0 < len(one.name) <= 1024


def _string_match(one: Any) -> None:
    assert one.WhichOneof("match_pattern")
    if one.WhichOneof("match_pattern") in ("prefix", "suffix", "contains"):
        assert getattr(one, one.WhichOneof("match_pattern"))


def _retries(one: Any) -> None:
    assert all(100 <= status <= 599 for status in one.retriable_status_codes)


def _mirror(one: Any) -> None:
    assert one.cluster
    assert one.runtime_fraction.default_value.numerator <= 100


def _cors(one: Any) -> None:
    for text in (one.allow_methods, one.allow_headers, one.expose_headers, one.max_age):
        assert not _BROKEN.search(text)


_CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "envoy.type.matcher.v3.RegexMatcher": _regex,
    "envoy.type.matcher.v3.RegexMatchAndSubstitute": _substitution,
    "envoy.type.matcher.v3.StringMatcher": _string_match,
    "envoy.config.core.v3.HeaderValue": _header_value,
    "envoy.config.route.v3.Route": _route,
    "envoy.config.route.v3.RouteMatch": _match,
    "envoy.config.route.v3.RouteAction": _action,
    "envoy.config.route.v3.WeightedCluster": _weights,
    "envoy.config.route.v3.RedirectAction": _redirect,
    "envoy.config.route.v3.HeaderMatcher": _header_match,
    "envoy.config.route.v3.QueryParameterMatcher": _query_match,
    "envoy.config.route.v3.RetryPolicy": _retries,
    "envoy.config.route.v3.RouteAction.RequestMirrorPolicy": _mirror,
    "envoy.extensions.filters.http.cors.v3.CorsPolicy": _cors,
}
