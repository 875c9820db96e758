"""The settings of the process: one table.

`Settings` is that table: each field's annotation carries what the flag, the environment variable, the key of the
configuration file, the help text and docs/reference/settings.md are made of, and the function that reads its text
wherever it came from. settings_sources.py fills it; everything else takes a `Settings`, and whoever embeds the process
makes one with values instead of texts. Reads nothing itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec

from aggregator.app import setting_values as values
from aggregator.app.setting_values import Address, ClusterSource, ObjectName, ServiceAccount

if TYPE_CHECKING:
    from collections.abc import Callable


class SettingsError(Exception):
    """A setting that cannot be used. `where` is the flag, the variable or the place in the file."""

    def __init__(self, where: str, problem: str, cure: str) -> None:
        super().__init__(f"{where}: {problem}; {cure}" if where else f"{problem}; {cure}")
        self.where = where
        self.problem = problem
        self.cure = cure


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one setting. `name` and `default` are those of the field and are filled in from it.

    The flag, the variable and the key are one word: `remote-timeout` is --remote-timeout, ISTHMUS_REMOTE_TIMEOUT and
    `remote-timeout:`.
    """

    help: str
    parse: Callable[[str], Any]
    value: str  # what the value looks like, in help texts
    unit: str = ""  # of the typed value
    show: Callable[[Any], str] = str  # back to text that `parse` reads
    many: bool = False  # a tuple: the flag may be repeated, commas separate entries
    switch: bool = False  # true or false: the flag needs no value, and has a twin that begins with --no-
    in_file: bool = True
    name: str = ""
    required: bool = False
    default: Any = None

    @property
    def word(self) -> str:
        """The name as people write it."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """The option of `isthmus run`."""
        return f"--{self.word}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"ISTHMUS_{self.name.upper()}"

    @property
    def key(self) -> str:
        """The key in the configuration file; empty where the setting cannot stand there."""
        return self.word if self.in_file else ""

    def text(self, value: Any) -> str:
        """A typed value as text; empty for a setting that is off."""
        if self.many:
            return ",".join(self.show(entry) for entry in value)
        return "" if value is None else self.show(value)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `isthmus run` can be told. Durations are seconds; None means off."""

    local: Annotated[
        ClusterSource | None,
        Setting(
            help="The home cluster, whose proxies are served: its name, and a kubeconfig or a directory of YAML or "
            "JSON manifests. Without it home is the cluster this process runs in.",
            parse=values.cluster_source,
            value="NAME=SOURCE",
        ),
    ] = None
    cluster_id: Annotated[
        str,
        Setting(
            help="The name of the home cluster where --local does not say it.",
            parse=values.cluster_id,
            value="NAME",
        ),
    ] = "Kubernetes"
    remote: Annotated[
        tuple[ClusterSource, ...],
        Setting(
            help="Another cluster of the mesh, read but not served: its name, and a kubeconfig or a directory. Give "
            "one for each. Secrets of home labelled istio/multiCluster=true in --system-namespace register more.",
            parse=values.cluster_source,
            value="NAME=SOURCE",
            many=True,
        ),
    ] = ()
    remotes: Annotated[
        Path | None,
        Setting(
            help="A directory of kubeconfigs of more remote clusters, which is watched: each file is named as its "
            "cluster, with or without .yaml, .yml, .json, .conf or .kubeconfig.",
            parse=values.path,
            value="DIR",
        ),
    ] = None
    kubeconfig_allow: Annotated[
        tuple[str, ...],
        Setting(
            help="What kubeconfigs may ask for although it makes the connection less safe.",
            parse=values.one_of("plain-http", "insecure-skip-tls-verify", "proxy-url"),
            value="plain-http|insecure-skip-tls-verify|proxy-url",
            many=True,
        ),
    ] = ()
    remote_timeout: Annotated[
        float,
        Setting(
            help="How long a remote cluster that has not been read yet is waited for, from the start or from when it "
            "is registered.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 30.0
    stale_after: Annotated[
        float,
        Setting(
            help="How long a cluster may be unreadable before that is reported as a fault: in the log, in findings and "
            "by /ready. Nothing that is served changes by it, unless --stale-ttl is set.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 60.0
    stale_ttl: Annotated[
        float | None,
        Setting(
            help="After how long the endpoints of a remote cluster that cannot be read are withdrawn; from "
            "--stale-after on they count half. Off: they are served for as long as it takes, since an API server that "
            "is out of reach does not say that its workloads are.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = None
    removal_grace: Annotated[
        float,
        Setting(
            help="How long a remote cluster is read on after its last registration has gone. 0s withdraws it at once; "
            "5s bridges a Secret that is deleted and made again, as `kubectl replace --force` and some tools do.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 0.0
    cluster_objects: Annotated[
        int,
        Setting(
            help="How many objects of one cluster are held, so that none can fill the memory. Of those beyond it none "
            "is taken until there is room again; `/clusters` says so.",
            parse=values.count,
            value="NUMBER",
        ),
    ] = 200_000
    object_bytes: Annotated[
        int,
        Setting(
            help="How large one object may be, as JSON. A larger one is named in `/findings`, and what it said before "
            "stands. API servers store at most 1.5Mi unless told otherwise.",
            parse=values.size,
            value="SIZE",
            unit="By",
            show=values.show_size,
        ),
    ] = 16 << 20
    cluster_bytes: Annotated[
        int,
        Setting(
            help="How many bytes a second are read of one cluster in the long run; ten seconds' worth may come at "
            "once. Beyond it the cluster is read more slowly, and nothing is lost.",
            parse=values.size,
            value="SIZE",
            unit="By",
            show=values.show_size,
        ),
    ] = 64 << 20
    cluster_events: Annotated[
        int,
        Setting(
            help="How many events a second are read of one cluster in the long run; ten seconds' worth may come at "
            "once. Beyond it the cluster is read more slowly, and nothing is lost.",
            parse=values.count,
            value="NUMBER",
        ),
    ] = 5_000
    system_namespace: Annotated[
        str,
        Setting(
            help="The namespace of the mesh configuration, its root policies and its control plane.",
            parse=values.namespace,
            value="NAMESPACE",
        ),
    ] = "istio-system"
    trust_domain: Annotated[
        str,
        Setting(
            help="The trust domain of SPIFFE identities, unless the mesh configuration names one.",
            parse=values.trust_domain,
            value="DOMAIN",
        ),
    ] = "cluster.local"
    domain_suffix: Annotated[
        str,
        Setting(
            help="The DNS suffix of services: NAME.NAMESPACE.svc.SUFFIX.",
            parse=values.domain,
            value="DOMAIN",
        ),
    ] = "cluster.local"
    clusterset_domain: Annotated[
        str,
        Setting(
            help="The DNS suffix of services that clusters export (ServiceExport): NAME.NAMESPACE.svc.SUFFIX.",
            parse=values.domain,
            value="DOMAIN",
        ),
    ] = "clusterset.local"
    export_clusterset_only: Annotated[
        bool,
        Setting(
            help="A ServiceExport shares a Service under its name with --clusterset-domain alone, as the Multi-Cluster "
            "Services API has it, and not under its own name as well, as the label istio.io/global does.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = False
    multicluster_services: Annotated[
        bool,
        Setting(
            help="Tell ServiceExports of home how they do, and make its ServiceImports. Not beside another controller "
            "of the Multi-Cluster Services API.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = True
    istio_classes: Annotated[
        bool,
        Setting(
            help="Be in Istio's place: serve classes whose controller is Istio's as well, write Istio's conditions and "
            "distribute root certificates. Not beside a running istiod.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = False
    distribute_roots: Annotated[
        bool,
        Setting(
            help="Write the root certificates of --cacerts into the ConfigMap istio-ca-root-cert of every namespace of "
            "home, where proxies mount them. --istio-classes does so, too. Not beside an istiod or another CA, whose "
            "certificates the namespaces trust.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = False
    revision: Annotated[
        str,
        Setting(
            help="Objects of Istio's kinds with another value in the label istio.io/rev are another control plane's.",
            parse=values.revision,
            value="NAME",
        ),
    ] = "default"
    remote_entries: Annotated[
        bool,
        Setting(
            help="Read ServiceEntries and WorkloadEntries of remote clusters as well; the global ones count.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = False
    ingress_service: Annotated[
        ObjectName | None,
        Setting(
            help="The Service of home in front of the ingress gateway: Ingresses that are served show the addresses of "
            "its load balancer in their status.",
            parse=values.object_name,
            value="NAMESPACE/NAME",
        ),
    ] = None
    default_certificate: Annotated[
        ObjectName | None,
        Setting(
            help="The Secret of home (type kubernetes.io/tls) whose certificate ingress gateways show where a host has "
            "no good one of its own, and to clients that name no host. Without it these are refused.",
            parse=values.object_name,
            value="NAMESPACE/SECRET",
        ),
    ] = None
    ingress_address: Annotated[
        tuple[str, ...],
        Setting(
            help="An address at which the ingress gateway is reached, shown by Ingresses as well or instead.",
            parse=values.published_address,
            value="IP|NAME",
            many=True,
        ),
    ] = ()
    ingress_regex_scope: Annotated[
        str,
        Setting(
            help="Where one Ingress wants its paths to be regular expressions: whether those of others for the "
            "same host are, too, as with ingress-nginx.",
            parse=values.one_of("host", "ingress"),
            value="host|ingress",
        ),
    ] = "host"
    ingress_snippets: Annotated[
        bool,
        Setting(
            help="Whether Ingresses may say by configuration-snippet what is understood of it here: headers, redirects "
            "and answers. What else is in it is told and left out.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = False
    write_status: Annotated[
        bool,
        Setting(
            help="Write the status of Ingresses, Gateways and GatewayClasses of home that are served.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = True
    write_rate: Annotated[
        float,
        Setting(
            help="How many writes a second home's API server is sent at most; twice as many at once after a pause.",
            parse=values.rate,
            value="NUMBER",
            show=values.show_rate,
        ),
    ] = 20.0
    leader_elect: Annotated[
        bool,
        Setting(
            help="Of several processes let one write to home, by the Lease isthmus-leader in --system-namespace. Off "
            "only where there is one process and never two, not even during an upgrade.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = True
    ztunnel_accounts: Annotated[
        tuple[ServiceAccount, ...],
        Setting(
            help="A service account that may act as ztunnel: be told all workloads and get certificates for those "
            "of its node.",
            parse=values.service_account,
            value="NAMESPACE/NAME",
            many=True,
        ),
    ] = (ServiceAccount("istio-system", "ztunnel"),)
    xds: Annotated[
        Address,
        Setting(
            help="Where proxies connect over TLS with a token, for xDS and certificates.",
            parse=values.address,
            value="IP:PORT",
        ),
    ] = Address("0.0.0.0", 15012)  # noqa: S104 - proxies of other nodes connect here
    xds_mtls: Annotated[
        Address | None,
        Setting(
            help="Where proxies connect over TLS with a client certificate of the mesh instead of a token. `off`: "
            "nowhere.",
            parse=values.address_or_off,
            value="IP:PORT|off",
        ),
    ] = Address("0.0.0.0", 15013)  # noqa: S104 - proxies of other nodes connect here
    xds_names: Annotated[
        tuple[str, ...],
        Setting(
            help="DNS names and IP addresses in the server certificate of --xds and --xds-mtls.",
            parse=values.certificate_name,
            value="NAME",
            many=True,
        ),
    ] = ("istiod.istio-system.svc", "isthmus.istio-system.svc", "localhost", "127.0.0.1", "::1")
    xds_plaintext: Annotated[
        Address | None,
        Setting(
            help="Where proxies of this machine may connect without TLS or token. Loopback only; off unless set.",
            parse=values.loopback_address,
            value="IP:PORT",
        ),
    ] = None
    identities: Annotated[
        Path | None,
        Setting(
            help="A file that maps tokens to SPIFFE identities, where no API server can review tokens.",
            parse=values.path,
            value="FILE",
        ),
    ] = None
    token_audience: Annotated[
        tuple[str, ...],
        Setting(
            help="What the tokens of proxies must be made for, any of these. Where --identities is off, the API server "
            "of home reviews those of home, and those of other clusters are verified by the keys of theirs.",
            parse=values.audience,
            value="AUDIENCE",
            many=True,
        ),
    ] = ("istio-ca",)
    recheck_tokens: Annotated[
        float,
        Setting(
            help="Within what time it is asked again whether the token of an open stream is still accepted. The stream "
            "of one that was revoked ends then, at the latest a minute later.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 300.0
    issue_certificates: Annotated[
        bool,
        Setting(
            help="Be the certificate authority of the mesh. Off beside another one, such as istio-csr or SPIRE.",
            parse=values.switch,
            value="true|false",
            show=values.show_switch,
            switch=True,
        ),
    ] = True
    cacerts: Annotated[
        Path | None,
        Setting(
            help="A directory with the CA to sign with: ca-cert.pem, ca-key.pem, root-cert.pem, cert-chain.pem. It is "
            "followed; see --root-overlap. Without it a root is made: see --ca-secret.",
            parse=values.path,
            value="DIR",
        ),
    ] = None
    ca_secret: Annotated[
        str | None,
        Setting(
            help="The Secret in --system-namespace that keeps the CA where --cacerts is off and home is an API server: "
            "its root is made once, and shared by all processes from then on. `istio-ca-secret` takes over that of an "
            "istiod. `off`: each process has a root of its own, until it ends.",
            parse=values.secret_or_off,
            value="NAME|off",
        ),
    ] = "isthmus-ca-secret"  # noqa: S105 - a name
    root_overlap: Annotated[
        float,
        Setting(
            help="How long a root that is new in --cacerts is trusted before anything is signed below it: as long as "
            "proxies may take to hear of it, which is when they renew their certificates.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 86_400.0
    server_certificate: Annotated[
        Path | None,
        Setting(
            help="A directory with the certificate of --xds and --xds-mtls, where --issue-certificates does not sign "
            "it: tls.crt and tls.key, and ca.crt with the roots of the mesh. It is followed.",
            parse=values.path,
            value="DIR",
        ),
    ] = None
    workload_cert_ttl: Annotated[
        float,
        Setting(
            help="How long the certificates last that gateways are given over SDS; they are renewed at half of it.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 86_400.0
    root_cert_out: Annotated[
        Path | None,
        Setting(
            help="Where to write the root certificate, for proxies that read it from a file.",
            parse=values.path,
            value="FILE",
        ),
    ] = None
    health: Annotated[
        Address,
        Setting(help="Where /ready and /live are answered.", parse=values.address, value="IP:PORT"),
    ] = Address("0.0.0.0", 8080)  # noqa: S104 - the kubelet asks here
    admin: Annotated[
        Address,
        Setting(
            help="Where /metrics and the read-only pages are answered. /metrics is for everybody; pages that name "
            "objects are for loopback, and for tokens of --system-namespace and --admin-namespaces.",
            parse=values.address,
            value="IP:PORT",
        ),
    ] = Address("0.0.0.0", 15014)  # noqa: S104 - Prometheus asks here
    admin_namespaces: Annotated[
        tuple[str, ...],
        Setting(
            help="A namespace besides --system-namespace whose service accounts may read all pages of --admin with "
            "their tokens.",
            parse=values.namespace,
            value="NAMESPACE",
            many=True,
        ),
    ] = ()
    drain: Annotated[
        float,
        Setting(
            help="How long open streams may finish when the process is told to stop.",
            parse=values.duration,
            value="DURATION",
            unit="s",
            show=values.show_duration,
        ),
    ] = 5.0
    log_format: Annotated[
        str,
        Setting(help="The form of log lines on stderr.", parse=values.one_of("text", "json"), value="text|json"),
    ] = "text"
    log_level: Annotated[
        str,
        Setting(
            help="The least level that is logged.",
            parse=values.one_of("debug", "info", "warning", "error"),
            value="debug|info|warning|error",
        ),
    ] = "info"
    config: Annotated[
        Path | None,
        Setting(
            help="A YAML file with any of these settings, keys as the flags without dashes in front. Flags and "
            "variables go before it; relative paths in it start at its directory.",
            parse=values.path,
            value="FILE",
            in_file=False,
        ),
    ] = None
    origins: dict[str, str] = {}
    """Where each setting that is not a default came from, by field name; filled by settings_sources.load."""

    @property
    def home(self) -> str:
        """The name of the home cluster."""
        return self.local.name if self.local else self.cluster_id

    @property
    def distributes_roots(self) -> bool:
        """Whether namespaces of home are given the root certificates: if asked for, and in Istio's place where the
        certificates are issued here.
        """
        return self.distribute_roots or (self.istio_classes and self.issue_certificates)

    def origin(self, name: str) -> str:
        """Where a person would change the setting of that field: where it came from, or else its flag."""
        return self.origins.get(name, f"--{name.replace('_', '-')}")


class Described(msgspec.Struct, frozen=True, gc=False):
    """One setting as it is in force. `text` is empty where it is off; `origin` says where it came from."""

    name: str
    text: str
    origin: str


def describe(settings: Settings) -> list[Described]:
    """Every setting with its value and where it came from, in the order of the table. Holds no secrets: only paths."""
    return [
        Described(
            setting.word, setting.text(getattr(settings, setting.name)), settings.origins.get(setting.name, "default")
        )
        for setting in TABLE
    ]


def _table() -> tuple[Setting, ...]:
    hints = get_type_hints(Settings, include_extras=True)
    rows = []
    for field in msgspec.structs.fields(Settings):
        for setting in getattr(hints[field.name], "__metadata__", ()):
            default = None if field.required else field.default
            rows.append(msgspec.structs.replace(setting, name=field.name, required=field.required, default=default))
    return tuple(rows)


TABLE: tuple[Setting, ...] = _table()
"""All settings, in the order in which they are explained."""
