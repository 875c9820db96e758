"""Which resources a name stands for, and what goes with them."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.mesh.addresses import pack
from aggregator.views.address_book import AddressBook
from xds.encoded import Ties, wrap
from xds.messages.addressing import GatewayAddress, NamespacedHostname, NetworkAddress
from xds.messages.service import Service, encode_service
from xds.messages.workload import ADDRESS_TYPE, TunnelProtocol, Workload, encode_workload

CART, ADS = "shop/cart.example", "shop/ads.example"
POD = "alpha//Pod/shop/cart-1"


def packed(address: str) -> bytes:
    found = pack(address)
    assert found is not None
    return found


class Book(AddressBook):
    """A book that is written in few words."""

    def __init__(self) -> None:
        super().__init__("alpha")

    def workload(self, uid: str, *addresses: str, joins: tuple[str, ...] = (), **fields: Any) -> None:
        given = {"network": "net", "cluster_id": "alpha", **fields}
        one = Workload(uid, uid, "shop", tuple(packed(address) for address in addresses), **given)
        self.put(uid, wrap(ADDRESS_TYPE, uid, encode_workload(one), ties=Ties(joins)))

    def service(self, name: str, *addresses: str, **fields: Any) -> None:
        namespace, _, hostname = name.partition("/")
        vips = [address.partition("/") for address in addresses]
        one = Service(
            hostname,
            namespace,
            hostname,
            tuple(NetworkAddress("net", packed(first), int(bits) if bits else None) for first, _, bits in vips),
            **fields,
        )
        self.put(name, wrap(ADDRESS_TYPE, name, encode_service(one), ties=Ties(admits=1)))


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_workload_is_found_by_its_uid_and_its_addresses(book: Book) -> None:
    book.workload(POD, "10.0.0.1", "2001:db8::1")
    for asked in (POD, "net/10.0.0.1", "net/2001:db8::1", "net/2001:DB8:0::1"):
        assert book.find(asked) == (POD,)
    assert book.find("other/10.0.0.1") == book.find("10.0.0.1") == book.find("") == ()


def test_a_service_is_found_by_its_name_and_its_addresses(book: Book) -> None:
    book.service(CART, "10.96.0.1")
    assert book.find(CART) == book.find("net/10.96.0.1") == (CART,)
    assert book.find("shop/other.example") == ()


def test_at_an_address_a_workload_hides_a_service(book: Book) -> None:
    book.service(CART, "10.0.0.1")
    book.workload(POD, "10.0.0.1")
    assert book.find("net/10.0.0.1") == (POD,)


def test_of_several_workloads_at_an_address_a_pod_is_the_best_then_what_takes_tunnels(book: Book) -> None:
    entry = "alpha/networking.istio.io/WorkloadEntry/shop/"
    book.workload(f"{entry}a", "10.0.0.1")
    book.workload(f"{entry}b", "10.0.0.1", tunnel_protocol=TunnelProtocol.HBONE)
    book.workload(POD, "10.0.0.1")
    assert book.find("net/10.0.0.1") == (POD, f"{entry}b", f"{entry}a")


def test_ranges_come_after_the_address_itself_and_the_longest_first(book: Book) -> None:
    book.service("shop/wide.example", "10.0.0.0/8")
    book.service("shop/narrow.example", "10.96.0.0/16")
    book.service(CART, "10.96.0.1")
    assert book.find("net/10.96.0.1") == (CART, "shop/narrow.example", "shop/wide.example")
    assert book.find("net/10.1.2.3") == ("shop/wide.example",)
    assert book.find("net/192.0.2.1") == book.find("net/2001:db8::1") == book.find("other/10.1.2.3") == ()
    assert (book.spans("shop/wide.example"), book.spans(CART)) == (True, False)


@pytest.mark.parametrize("given", ["10.0.0.0/33", "10.0.0.0/200"])
def test_a_range_that_is_none_holds_nothing(book: Book, given: str) -> None:
    book.service(CART, given)
    assert book.find("net/10.0.0.0") == ()


def test_the_endpoints_of_a_service_belong_to_it_whether_it_is_there_or_not(book: Book) -> None:
    book.workload(POD, "10.0.0.1", joins=(CART, ADS))
    assert list(book.members(CART)) == list(book.members(ADS)) == [POD]
    assert list(book.members("shop/other.example")) == []


def test_what_a_resource_names_is_found_whatever_kind_of_name_it_is(book: Book) -> None:
    book.workload("NetworkGateway/far/203.0.113.1/0", "203.0.113.1", network="far")
    book.service("shop/waypoint.example")
    book.workload(
        POD,
        network_gateway=GatewayAddress(NetworkAddress("far", packed("203.0.113.1")), 15008),
        waypoint=GatewayAddress(NamespacedHostname("shop", "waypoint.example"), 15008),
    )
    assert list(book.needs(POD)) == ["NetworkGateway/far/203.0.113.1/0", "shop/waypoint.example"]
    assert list(book.needs("nobody")) == []


def test_a_resource_is_sought_by_its_addresses_and_its_services(book: Book) -> None:
    book.workload(POD, "10.0.0.1", joins=(CART,))
    assert book.sought(POD) == ("net/10.0.0.1", CART)
    assert book.sought("nobody") == ()


def test_aliases_are_the_addresses_and_ranges_with_their_bits(book: Book) -> None:
    book.service(CART, "10.96.0.1", "10.97.0.0/16")
    assert book.aliases(CART) == ("net/10.96.0.1", "net/10.97.0.0/16")
    assert book.aliases("nobody") == ()


def test_a_ztunnel_is_told_unasked_of_gateways_and_of_the_workloads_of_its_node(book: Book) -> None:
    book.workload("NetworkGateway/far/203.0.113.1/0", "203.0.113.1", network="far")
    book.workload(POD, "10.0.0.1", node="node-1")
    book.workload("alpha//Pod/shop/cart-2", "10.0.0.2", node="node-2")
    book.workload("beta//Pod/shop/cart-3", "10.0.0.3", node="node-1", cluster_id="beta")
    book.workload("alpha//Pod/shop/cart-4", "10.0.0.4")
    assert list(book.standing("node-1")) == ["NetworkGateway/far/203.0.113.1/0", POD]
    assert list(book.standing("")) == ["NetworkGateway/far/203.0.113.1/0"]
    assert [name for name in book._entries if book.stands(name, "node-1")] == list(book.standing("node-1"))


def test_nothing_is_left_of_what_changes_or_goes(book: Book) -> None:
    book.workload(POD, "10.0.0.1", joins=(CART,), node="node-1")
    book.workload(POD, "10.0.0.2", joins=(ADS,), node="node-2")
    book.service(CART, "10.96.0.1", "10.97.0.0/16")
    book.service(CART, "10.96.0.2")
    assert book.find("net/10.0.0.1") == book.find("net/10.96.0.1") == book.find("net/10.97.0.1") == ()
    assert (list(book.members(CART)), list(book.standing("node-1"))) == ([], [])
    for name in (POD, CART, "nobody"):
        book.put(name, None)
    empty = vars(Book())
    assert {key: value for key, value in vars(book).items() if value != empty[key]} == {}
