"""The typed values of settings and how each is read from text.

In: the text of a flag, a variable or a key of the configuration file. Out: a value, or ValueProblem, which says what
is wrong with the text and what to write instead. Each type has its way back to text (`str` or `show`), which is read
again as the same value. Pure: nothing here looks at files, the network or the environment; settings.py knows where a
text came from.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

# RFC 1123 label and subdomain, as Kubernetes checks names of namespaces and of service accounts.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
# As watchers.facts.keys.trust_domain has it, which the CLI would load all kinds of facts for.
_TRUST_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9._]{0,253}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
# A name a server certificate may carry: any case, and a wildcard as the whole first label (RFC 6125).
_DNS_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)
# The SPIFFE-ID specification, section 2.1: lower case letters, digits, dots, dashes, underscores.
# A cluster's name is the first part of workload ids such as `west//Pod/shop/cart`: no slash may be in it.
_CLUSTER = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_RATE = re.compile(r"\d{1,6}(?:\.\d{1,3})?")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_SIZE = re.compile(r"([1-9][0-9]{0,8})(Ki|Mi|Gi)?")
_SIZES = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class ValueProblem(ValueError):
    """A text that cannot be used: `problem` says why, `cure` what to write instead."""

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(f"{problem}; {cure}")
        self.problem = problem
        self.cure = cure


class Address(msgspec.Struct, frozen=True, gc=False):
    """Where a listener listens: an IP address or `localhost`, and a port (0: any free one)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


class ClusterSource(msgspec.Struct, frozen=True, gc=False):
    """A cluster and what it is read from: a directory of manifests, or a kubeconfig that leads to its API server."""

    name: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name}={self.path}"


class ServiceAccount(msgspec.Struct, frozen=True, gc=False):
    """A Kubernetes service account, written `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ObjectName(msgspec.Struct, frozen=True, gc=False):
    """An object in a namespace, written `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def address(text: str) -> Address:
    """`HOST:PORT`; an IPv6 address stands in brackets, as in URLs (RFC 3986)."""
    cure = "write IP:PORT, such as 0.0.0.0:15012, 127.0.0.1:0 or [::]:15012"
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueProblem(f"{text!r} has no port", cure)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueProblem(f"{text!r} has no port between 0 and 65535", cure)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueProblem(f"{text!r} has an IPv6 address without brackets", cure)
    if host != "localhost":
        try:
            host = str(ipaddress.ip_address(host))
        except ValueError:
            raise ValueProblem(f"{text!r} does not begin with an IP address", cure) from None
    return Address(host, int(port))


def address_or_off(text: str) -> Address | None:
    """An address, or `off`."""
    return None if text == "off" else address(text)


def loopback_address(text: str) -> Address:
    """An address only this machine can reach."""
    parsed = address(text)
    if not parsed.loopback:
        raise ValueProblem(
            f"{text!r} can be reached from other machines, and this listener does not ask who is calling",
            "write a loopback address, such as 127.0.0.1:15010",
        )
    return parsed


def cluster_source(text: str) -> ClusterSource:
    """`NAME=SOURCE`, split at the first equals sign."""
    name, equals, source = text.partition("=")
    if not equals:
        raise ValueProblem(f"{text!r} has no '='", "write NAME=SOURCE, such as west=./west")
    cluster_id(name)
    if not source:
        raise ValueProblem(f"cluster {name!r} has no source", "write NAME=SOURCE, such as west=./west")
    if "://" in source:
        raise ValueProblem(
            f"{source!r} is a URL, which says nothing of credentials",
            "give a kubeconfig file that leads there, or a directory of YAML or JSON manifests",
        )
    return ClusterSource(name, Path(source))


def cluster_id(text: str) -> str:
    """The id of a cluster."""
    if not _CLUSTER.fullmatch(text):
        raise ValueProblem(
            f"{text!r} is no cluster name",
            "use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        )
    return text


def duration(text: str) -> float:
    """A length of time in seconds, from numbers with units as Go writes them: `500ms`, `30s`, `1m30s`, `2h`."""
    if not _DURATION.fullmatch(text):
        raise ValueProblem(f"{text!r} is not a duration", "write numbers with units, such as 500ms, 30s or 5m")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def show_duration(seconds: float) -> str:
    """The shortest text that `duration` reads as these seconds."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def count(text: str) -> int:
    """A number of things: at least one, digits only."""
    if not _COUNT.fullmatch(text):
        raise ValueProblem(f"{text!r} is no number of at least 1", "write digits only, such as 200000")
    return int(text)


def size(text: str) -> int:
    """A number of bytes, written as Kubernetes writes quantities of memory: `512Ki`, `16Mi`, `1Gi`, or plain bytes."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueProblem(f"{text!r} is no size", "write a whole number with Ki, Mi or Gi, such as 16Mi")
    return int(found[1]) * _SIZES[found[2] or ""]


def show_size(number: int) -> str:
    """The shortest text that `size` reads as so many bytes."""
    for unit, one in reversed(_SIZES.items()):
        if number % one == 0:
            return f"{number // one}{unit}"
    return str(number)


def namespace(text: str) -> str:
    """The name of a Kubernetes namespace."""
    if not _NAMESPACE.fullmatch(text):
        raise ValueProblem(
            f"{text!r} is no namespace", "use at most 63 lower-case letters, digits and '-', such as istio-system"
        )
    return text


def secret_or_off(text: str) -> str | None:
    """The name of a Secret, or `off`."""
    if text == "off":
        return None
    if len(text) > 253 or not all(_NAMESPACE.fullmatch(part) for part in text.split(".")):
        raise ValueProblem(
            f"{text[:80]!r} is no name of a Secret",
            "use lower-case letters, digits, '-' and '.', such as isthmus-ca-secret, or off",
        )
    return text


def revision(text: str) -> str:
    """The name of a control plane, as the label istio.io/rev may hold it."""
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueProblem(
            f"{text!r} is no revision", "use at most 63 letters, digits, '-', '_' and '.', such as default or 1-30"
        )
    return text


def trust_domain(text: str) -> str:
    """The trust domain of SPIFFE ids."""
    if not _TRUST_DOMAIN.fullmatch(text):
        raise ValueProblem(
            f"{text!r} is no SPIFFE trust domain",
            "use at most 255 lower-case letters, digits, '.', '-' and '_', such as cluster.local",
        )
    return text


def domain(text: str) -> str:
    """The DNS suffix of a cluster's services."""
    if not _SUBDOMAIN.fullmatch(text):
        raise ValueProblem(f"{text!r} is no DNS domain", "use lower-case labels and dots, such as cluster.local")
    return text


def certificate_name(text: str) -> str:
    """A DNS name or an IP address for the subject alternative names of a server certificate."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if _DNS_NAME.fullmatch(text):
            return text.lower()
    raise ValueProblem(
        f"{text!r} is neither a DNS name nor an IP address", "write names such as istiod.istio-system.svc or 10.0.0.5"
    )


def service_account(text: str) -> ServiceAccount:
    """`NAMESPACE/NAME`."""
    return ServiceAccount(*_in_namespace(text, "is no service account", "istio-system/ztunnel"))


def audience(text: str) -> str:
    """What a token is made for: any word or URL."""
    if not text or not text.isprintable() or " " in text:
        raise ValueProblem(f"{text!r} is not an audience", "write a word or a URL, such as istio-ca")
    return text


def published_address(text: str) -> str:
    """A DNS name or an IP address by which others find a gateway."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if _SUBDOMAIN.fullmatch(text.lower()):
            return text.lower()
    raise ValueProblem(f"{text!r} is neither a DNS name nor an IP address", "write 203.0.113.7 or lb.example.com")


def object_name(text: str) -> ObjectName:
    """`NAMESPACE/NAME` of an object in a namespace."""
    return ObjectName(*_in_namespace(text, "names no object", "istio-system/gateway"))


def rate(text: str) -> float:
    """A number of times a second, above 0."""
    if not _RATE.fullmatch(text) or float(text) <= 0:
        raise ValueProblem(f"{text!r} is no rate", "write how many a second, such as 20 or 0.5")
    return float(text)


def show_rate(number: float) -> str:
    """Back to text."""
    return f"{number:g}"


def path(text: str) -> Path:
    """A file or directory; whether it is there is found out by whoever reads it."""
    return Path(text)


def switch(text: str) -> bool:
    """Whether something is on."""
    if text.lower() not in ("true", "false"):
        raise ValueProblem(f"{text!r} is neither true nor false", "write one of true, false")
    return text.lower() == "true"


def show_switch(on: bool) -> str:
    """Back to text."""
    return "true" if on else "false"


def one_of(*choices: str) -> Callable[[str], str]:
    """A reader of a word out of `choices`."""

    def choose(text: str) -> str:
        if text not in choices:
            raise ValueProblem(f"{text!r} is not known", f"write one of {', '.join(choices)}")
        return text

    return choose


def _in_namespace(text: str, problem: str, example: str) -> tuple[str, str]:
    """The two parts of `NAMESPACE/NAME`."""
    space, slash, name = text.partition("/")
    if not (slash and _NAMESPACE.fullmatch(space) and _SUBDOMAIN.fullmatch(name)):
        raise ValueProblem(f"{text!r} {problem}", f"write NAMESPACE/NAME, such as {example}")
    return space, name
