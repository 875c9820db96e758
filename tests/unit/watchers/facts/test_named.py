"""ConfigMaps with roots, and what is kept of objects that are read by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kit import manifests as m
from watchers.facts import Fact, Reading, RootsConfigMap, SecretAccess, kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.named import NAMED, access_key, object_key, reading_key
from watchers.facts.secrets import MOST_BYTES, NamedSecret


def decoded(document: Any) -> Any:
    return kinds.decode(document, "west", "istio-system")


def test_a_config_map_of_a_directory_is_read_for_its_roots() -> None:
    document = m.config_map("shop/ca", ca_crt="roots", other="text")
    assert decoded(document) == (("west", "RootsConfigMap", "shop", "ca"), RootsConfigMap(b"roots"))


def test_a_config_map_without_roots_is_not_read() -> None:
    assert decoded(m.config_map("shop/ca", other="text")) is None


def test_the_mesh_configuration_stays_what_it_is() -> None:
    keyed = decoded(m.config_map("istio-system/istio", mesh="{}", ca_crt="roots"))
    assert keyed is not None
    assert keyed[0][1] == "MeshConfig"


def test_by_name_a_config_map_without_roots_is_there() -> None:
    keyed = kinds.ROOTS_CONFIG_MAP.decode(m.config_map("shop/ca"), "west", "s")
    assert keyed is not None
    assert keyed[1] == RootsConfigMap(b"")


def test_roots_longer_than_a_config_map_can_be_are_refused() -> None:
    with pytest.raises(InvalidObject, match="longer than"):
        decoded(m.config_map("shop/ca", ca_crt="x" * (MOST_BYTES + 1)))


@pytest.mark.parametrize(
    "fact",
    [RootsConfigMap(b"r"), NamedSecret(b"c", b"k"), Reading("denied", "why"), SecretAccess(False, "why", True)],
)
def test_they_survive_being_encoded(fact: Any) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fact), type=Fact) == fact


def test_facts_read_by_name_stand_apart_from_every_cluster() -> None:
    wanted = ("NamedSecret", "shop", "tls")
    keys = {object_key(wanted), reading_key(wanted), access_key("shop", "edge")}
    assert len(keys) == 3
    assert {key[0] for key in keys} == {NAMED}
