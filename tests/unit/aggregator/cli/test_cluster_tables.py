from __future__ import annotations

from aggregator.cli.cluster_tables import rows, unfolded
from aggregator.cli.output import table
from tests.kit.clusters import after, before, cluster, kind, unread

STALE = cluster(
    "east",
    state="Stale",
    reason="EndpointSlice: Connection refused",
    since=before(seconds=94),
    lag=94.0,
    endpoints=3987,
    certificate_expires=after(days=340),
    withdrawn=after(minutes=30),
    kinds=(
        kind("Service"),
        kind("Pod"),
        kind("EndpointSlice", "stale", "Connection refused", confirmed=before(seconds=94)),
    ),
)
READING = (
    "dns ok | tcp ok | tls ok | auth ok | rbac ok 3/3 | list ok 3/3 | "
    "watch FAIL (2/3 EndpointSlice: Connection refused)"
)
DENIED = cluster(
    "lab",
    state="Denied",
    reason="Service: 401 Unauthorized",
    lag=None,
    services=0,
    endpoints=0,
    token_expires=before(hours=2),
    kinds=(unread("Service", "denied", "401 Unauthorized"), unread("Pod")),
)


def lines(*clusters: object, wide: bool = False, replicas: bool = False, headers: bool = True) -> list[str]:
    return table(rows(clusters, wide=wide, replicas=replicas, headers=headers))  # type: ignore[arg-type]


def test_the_table_says_what_matters_of_every_cluster() -> None:
    assert lines(cluster(), STALE, DENIED) == [
        "CLUSTER  NETWORK  STATE   LAG   SERVICES  ENDPOINTS  TOKEN-EXPIRES  CERT-EXPIRES  REASON",
        "west     net-w    Synced  0.2s  300       4000       in 27d         -             -",
        f"east     net-e    Stale   94s   300       3987       in 27d         in 340d       {STALE.reason}",
        "lab      net-l    Denied  -     0         0          2h ago         -             Service: 401 Unauthorized",
    ]


def test_headers_can_be_left_out() -> None:
    assert lines(cluster(), headers=False) == ["west  net-w  Synced  0.2s  300  4000  in 27d  -  -"]


def test_the_wide_table_adds_columns_and_keeps_the_order_of_the_others() -> None:
    assert lines(cluster(), wide=True)[0].split() == [
        *lines(cluster())[0].split()[:-1],
        "SINCE",
        "SERVER",
        "REGISTERED-BY",
        "REPLICA",
        "REASON",
    ]


def test_of_several_replicas_each_has_its_row() -> None:
    made = lines(cluster(), cluster(replica="isthmus-1"), replicas=True)
    assert [line.split()[-2] for line in made] == ["REPLICA", "isthmus-0", "isthmus-1"]


def test_a_long_reason_is_cut_unless_the_table_is_wide() -> None:
    long = cluster(reason="x" * 300)
    assert lines(long)[1].endswith(f" {'x' * 97}...")
    assert lines(long, wide=True)[1].endswith("x" * 300)


def test_names_and_reasons_cannot_forge_a_row_or_speak_to_the_terminal() -> None:
    hostile = cluster("we\x1b[31mst", network="n\nlab", reason="\u202ereason\r\nwest Synced", registered_by="\x07")
    for text in ("\n".join(lines(hostile, wide=True)), "\n".join(unfolded([hostile], colours=False))):
        assert all(letter.isprintable() or letter == "\n" for letter in text)
        assert "we\\x1b[31mst" in text
    assert len(lines(hostile)) == 2


def test_one_cluster_is_unfolded_with_where_its_reading_stops() -> None:
    assert unfolded([STALE], colours=False) == [
        "cluster             east",
        "network             net-e",
        "state               Stale since 09:12:30Z (94s ago): EndpointSlice: Connection refused",
        "lag                 94s",
        "content             300 services, 3987 ready endpoints",
        "server              east.example.org:6443, uid uid-of-east",
        "registered by       Secret istio-system/east",
        "token               expires in 27d (2026-11-29T09:14:04Z)",
        "certificate         expires in 340d (2027-10-08T09:14:04Z)",
        "server certificate  expires in 340d (2027-10-08T09:14:04Z)",
        "endpoints           served as last known until 09:44:04Z, then withdrawn",
        f"reading             {READING}",
        "replicas            isthmus-0 Stale lag 94s",
        "",
        "KIND           STATE   OBJECTS  HEARD     CONFIRMED  REASON",
        "Service        synced  12       3.0s ago  0.2s ago   -",
        "Pod            synced  12       3.0s ago  0.2s ago   -",
        "EndpointSlice  stale   12       3.0s ago  94s ago    Connection refused",
    ]


def test_a_directory_has_no_connection_to_tell_of() -> None:
    directory = cluster(
        home=True, server="", uid="", token_expires=None, server_certificate_expires=None, kinds=(), reason=""
    )
    assert [line.split("  ")[0] for line in unfolded([directory], colours=False)] == [
        "cluster",
        "network",
        "state",
        "lag",
        "content",
        "registered by",
        "replicas",
    ]


def test_replicas_that_see_a_cluster_differently_are_told() -> None:
    (line,) = (
        line
        for line in unfolded([cluster(), cluster(replica="isthmus-1", endpoints=3, lag=9.0)], colours=False)
        if line.startswith("replicas")
    )
    assert line == "replicas            isthmus-0 Synced lag 0.2s, isthmus-1 Synced lag 9.0s; they differ in endpoints"


def test_endpoints_that_were_withdrawn_are_told() -> None:
    gone = cluster(state="Stale", withdrawn=before(minutes=1))
    assert "endpoints           withdrawn at 09:13:04Z" in unfolded([gone], colours=False)
