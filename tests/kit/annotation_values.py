"""Annotations that people write, for tests of what becomes of any of them: sound values, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from watchers.facts.networking import ANNOTATION_PREFIXES

SOUND: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl-redirect": ("true", "false"),
    "force-ssl-redirect": ("true", "false"),
    "permanent-redirect": ("https://to.example/a?b", "/a", "https://to.example/x$request_uri"),
    "permanent-redirect-code": ("308", "301"),
    "temporal-redirect": ("http://$host:81$request_uri",),
    "temporal-redirect-code": ("303",),
    "app-root": ("/app",),
    "from-to-www-redirect": ("true",),
    "use-regex": ("true", "false"),
    "rewrite-target": ("/", "/$1", "/$2$9", "/a\\1"),
    "upstream-vhost": ("b.example:80", "$service_name.$namespace"),
    "x-forwarded-prefix": ("/x", "100%"),
    "request-header-control-add": ("x-a 1\nx-b %REQ(x)%",),
    "request-header-control-update": ('x-c "2"',),
    "request-header-control-remove": ("x-d,x-e",),
    "response-header-control-add": ("x-a 1",),
    "response-header-control-update": ("x-b 100%",),
    "response-header-control-remove": ("server",),
    "match-method": ("GET", "GET POST"),
    "match-header-exact-x-a": ("", "1"),
    "match-header-prefix-x-b": ("v",),
    "match-header-regex-x-c": ("[a-z]+",),
    "match-query-exact-q": ("1",),
    "match-query-regex-r": ("a|b",),
    "ignore-path-case": ("true",),
    "server-alias": ("alias.example", "c.example, other.example"),
    "canary": ("true", "true", "false"),
    "canary-by-header": ("x-canary",),
    "canary-by-header-value": ("v",),
    "canary-by-header-pattern": ("v.*",),
    "canary-by-cookie": ("c.d",),
    "canary-weight": ("0", "30", "100"),
    "canary-weight-total": ("100", "1000"),
    "mirror-target-service": ("two", "shop/two:81"),
    "mirror-percentage": ("0", "50"),
    "destination": ("two.shop.svc", "70% one.shop.svc:80\n30% two.shop.svc"),
    "backend-protocol": ("HTTP", "grpc"),
    "proxy-read-timeout": ("5",),
    "proxy-send-timeout": ("7s",),
    "timeout": ("9",),
    "proxy-next-upstream": ("error timeout http_503", "off"),
    "proxy-next-upstream-tries": ("0", "2"),
    "enable-cors": ("true",),
    "cors-allow-origin": ("*", "https://*.a.example, http://b.example:8080"),
    "cors-allow-credentials": ("false",),
    "cors-allow-headers": ("X-A, X-B",),
    "cors-max-age": ("60",),
    "whitelist-source-range": ("10.0.0.0/8, 2001:db8::/32", "::1"),
    "denylist-source-range": ("10.1.0.0/16",),
    "auth-signin": ("https://$host/in?rd=$escaped_request_uri", "https://in.example/"),
    "auth-response-headers": ("X-User, X-Groups",),
    "limit-rps": ("5",),
    "limit-rpm": ("100",),
    "proxy-body-size": ("8m", "0"),
    "affinity": ("cookie",),
    "session-cookie-name": ("route",),
    "session-cookie-samesite": ("Lax",),
    "upstream-hash-by": ("$request_uri", "${http_x}$arg_q$remote_addr"),
}
"""Values that mean something, by the name of the annotation."""

TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "auth-type": ("basic", "basic", "digest"),
    "auth-secret": ("people", "people", "other/people"),
    "auth-url": ("http://two.shop.svc:81/x?a=%20", "https://two/", "http://169.254.169.254/"),
    "custom-http-errors": ("404,503",),
    "default-backend": ("two",),
    "proxy-ssl-secret": ("own",),
    "proxy-ssl-verify": ("on",),
    "ssl-passthrough": ("true",),
}
"""Values that mean something only together with others, or not with others."""

HOSTILE: Final = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "",
            "%",
            "%REQ(x)%",
            "\\1",
            "\\",
            "$9",
            "(",
            "a{1001}",
            "(?P<a>",
            "[[:alpha:]",
            "a\r\nb: c",
            "\x00",
            "x" * 5000,
            "-1",
            "9" * 400,
            "٣",
            "*",
            ":path x",
            "host a",
            "x-isthmus-host a",
            "x-a \x7f",
            "https://to.example/%0d%0a",
            "//to.example",
            "|ing|a|b",
            "true\n",
            "neighbour.test",
        ]
    ),
    st.sampled_from(sorted({value for values in SOUND.values() for value in values})),
)
"""Values that mean nothing, or something elsewhere."""

NAMES: Final = st.one_of(
    st.sampled_from(sorted(SOUND)),
    st.sampled_from(["match-header-regex-", "match-header-exact-:path", "match-query-prefix-", "server-snippet"]),
    st.text("abcdefghijklmnopqrstuvwxyz-*.", min_size=1, max_size=20),
)


@st.composite
def annotated(draw: st.DrawFn, hostile: bool = True) -> dict[str, Any]:
    """Annotations of an Ingress by their full names."""
    found: dict[str, Any] = {}
    for _ in range(draw(st.integers(0, 6))):
        prefix = draw(st.sampled_from(ANNOTATION_PREFIXES))
        if hostile and draw(st.integers(0, 2)) == 0:
            found[prefix + draw(NAMES)] = draw(HOSTILE)
        elif hostile and draw(st.integers(0, 2)) == 0:
            name = draw(st.sampled_from(sorted(TOGETHER)))
            found[prefix + name] = draw(st.sampled_from(TOGETHER[name]))
        else:
            name = draw(st.sampled_from(sorted(SOUND)))
            found[prefix + name] = draw(st.sampled_from(SOUND[name]))
    return found
