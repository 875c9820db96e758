"""One file of manifests: forms it may have, and what is wrong with it in which line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit import manifests
from watchers.documents import UnreadableText
from watchers.manifests import Flaw, Manifests, read_manifests, subject

POD = manifests.pod("shop/a", "10.0.0.1")
SERVICE = manifests.service("shop/a", "10.96.0.1")


def read(content: str | bytes, name: str = "objects.yaml") -> Manifests:
    data = content if isinstance(content, bytes) else content.encode()
    return read_manifests(name, data, "west", "istio-system")


def names(found: Manifests) -> list[tuple[str, str]]:
    return [(key[1], key[3]) for key in found.facts]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_file_may_hold_one_object(form: str) -> None:
    found = read(manifests.manifest_text(POD, form=form), f"a.{form}")
    assert names(found) == [("Pod", "a")]
    assert (found.flaw, found.flaws, found.invalid) == (None, 0, frozenset())


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_file_may_hold_a_list(form: str) -> None:
    text = manifests.manifest_text(manifests.object_list(POD, SERVICE), form=form)
    assert names(read(text, f"a.{form}")) == [("Pod", "a"), ("Service", "a")]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_the_items_of_a_typed_list_need_not_say_their_kind(form: str) -> None:
    bare = {key: value for key, value in POD.items() if key not in ("apiVersion", "kind")}
    text = manifests.manifest_text({"apiVersion": "v1", "kind": "PodList", "items": [bare]}, form=form)
    assert names(read(text, f"a.{form}")) == [("Pod", "a")]


def test_a_file_may_hold_documents_and_lists_of_them() -> None:
    text = manifests.manifest_text(manifests.namespace("shop"), manifests.object_list(POD), SERVICE)
    assert names(read(text)) == [("Namespace", "shop"), ("Pod", "a"), ("Service", "a")]


def test_json_in_a_file_of_yaml_is_yaml() -> None:
    assert names(read(manifests.manifest_text(POD, form="json"), "a.yaml")) == [("Pod", "a")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("values.yaml", "replicas: 3\nimage: app\n"),
        ("list.yaml", "- a\n- b\n"),
        ("text.yaml", "text\n"),
        ("empty.yaml", ""),
        ("comment.yaml", "# nothing\n---\n"),
        ("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"),
        ("nested.yaml", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}, 5, null]\n"),
        ("package.json", '{"name": "a", "version": "1"}'),
        ("array.json", "[1, 2]"),
        ("number.json", "5"),
        ("empty.json", ""),
        ("blank.json", " \n\t"),
        ("list.json", '{"apiVersion": "v1", "kind": "List", "items": null}'),
        ("items.json", '{"apiVersion": "v1", "kind": "List", "items": [5, null, {}]}'),
        ("odd.json", '{"apiVersion": "v1", "kind": "List", "items": {}}'),
    ],
)
def test_what_is_no_object_of_a_kind_we_read_is_passed_over(name: str, content: str) -> None:
    found = read(content, name)
    assert (found.facts, found.flaw) == ({}, None)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"kind": "Pod", "metadata": {"name": "a"}}, "apiVersion"),
        ({"apiVersion": "v1", "metadata": {"name": "a"}}, "kind"),
        ({"metadata": {"name": "a"}}, "apiVersion"),
        ({"apiVersion": "v1", "kind": ""}, "kind"),
        ({"apiVersion": 1, "kind": "Pod"}, "apiVersion"),
    ],
)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_object_that_does_not_say_what_it_is_is_a_flaw(form: str, document: Any, field: str) -> None:
    found = read(manifests.manifest_text(document, form=form), f"a.{form}")
    assert found.flaw is not None
    assert found.flaw.cause.startswith(f"{field} is")


# Lines


def test_flaws_of_yaml_have_the_line_of_the_field() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    x: y\n    ambient: true\n"
    assert read("---\n" + text).flaw == Flaw(
        8, "Pod default/a: metadata.labels.ambient is true, must be a string", 'put it in quotes: "true"'
    )


def test_flaws_in_a_list_of_yaml_have_the_line_of_the_field() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n"
        "- apiVersion: v1\n  kind: Node\n  metadata:\n    name: 5\n"
    )
    found = read(text)
    assert names(found) == [("Node", "a")]
    assert found.flaw is not None
    assert found.flaw.line == 10


@pytest.mark.parametrize("indent", [2, "\t"])
def test_flaws_of_json_have_the_line_of_the_field(indent: int | str) -> None:
    bad = manifests.pod("shop/b", "10.0.0.1", labels={"x": "y", "z": True})
    text = "\n" + json.dumps(manifests.object_list(POD, bad, SERVICE), indent=indent)
    found = read(text, "a.json")
    assert names(found) == [("Pod", "a"), ("Service", "a")]
    assert found.flaw is not None
    assert text.splitlines()[found.flaw.line - 1].strip() == '"z": true'


def test_a_flaw_of_a_single_object_of_json_has_its_line() -> None:
    text = "\n\n" + json.dumps(manifests.pod("shop/b", labels={"z": True}), indent=1)
    flaw = read(text, "a.json").flaw
    assert flaw is not None
    assert text.splitlines()[flaw.line - 1].strip() == '"z": true'


def test_the_lines_of_objects_of_json() -> None:
    text = json.dumps(manifests.object_list(POD, SERVICE, manifests.node("n")), indent=2)
    found = read(text, "a.json")
    for line in found.lines.values():
        assert text.splitlines()[line - 1 : line + 1][1].strip().startswith('"apiVersion"')
    assert len(set(found.lines.values())) == 3


def test_a_flaw_in_the_mesh_configuration_has_its_line_in_the_file() -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n"
        "data:\n  mesh: |\n    # mesh\n    trustDomain: a/b\n"
    )
    flaw = read(text).flaw
    assert flaw is not None
    assert flaw.line == 7
    assert flaw.cause.startswith("ConfigMap istio-system/istio: data.mesh.trustDomain is 'a/b'")


# Neighbours


def test_the_good_objects_of_a_file_are_used() -> None:
    bad = manifests.pod("shop/b", labels={"x": 1})
    worse = manifests.pod("shop/c", spec={"nodeName": "a/b"})
    found = read(manifests.manifest_text(bad, POD, worse, SERVICE))
    assert names(found) == [("Pod", "a"), ("Service", "a")]
    assert found.invalid == {("west", "Pod", "shop", "b"), ("west", "Pod", "shop", "c")}
    assert found.flaws == 2
    assert found.flaw is not None
    assert found.flaw.cause.startswith("Pod shop/b: metadata.labels.x is 1")


def test_of_an_object_that_stands_twice_the_first_counts() -> None:
    text = manifests.manifest_text(manifests.pod("shop/a", "10.0.0.1"), manifests.pod("shop/a", "10.0.0.2"))
    found = read(text)
    (fact,) = found.facts.values()
    assert getattr(fact, "addresses", None) == ("10.0.0.1",)
    assert found.flaw == Flaw(
        text.splitlines().index("---") + 2,
        "Pod shop/a stands twice in this file, first in line 1",
        "remove one of them",
    )


def test_a_version_that_is_not_read_is_a_flaw_and_not_overlooked() -> None:
    found = read("apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a}\n")
    assert found.flaw is not None
    assert found.flaw.cure == "use discovery.k8s.io/v1"


# Files that cannot be read


@pytest.mark.parametrize(
    ("name", "content", "line", "cause"),
    [
        ("a.yaml", b"a: 1\nb: \xff\n", 2, "holds the byte 0xff, not UTF-8"),
        ("a.json", b'{"a":\n"\xff"}', 2, "holds the byte 0xff, not UTF-8"),
        ("a.yaml", "a: ü\n".encode("utf-16"), 1, "holds the byte 0xff, not UTF-8"),
        ("a.yaml", b"a: [\n", 2, "did not find expected node content"),
        ("a.json", b'{"a": 1,\n', 2, "ends in the middle"),
        ("a.json", b'{"a": 1,\n}', 2, "JSON is malformed: trailing comma in object (byte 9)"),
        ("a.json", b'{"a": ' + b"[" * 1_000_000, 1, "is nested too deeply"),
        ("a.json", b"kind: Pod", 1, "JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_a_file_that_cannot_be_parsed(name: str, content: bytes, line: int, cause: str) -> None:
    with pytest.raises(UnreadableText) as caught:
        read(content, name)
    assert (caught.value.line, caught.value.cause) == (line, cause)


def test_the_number_of_values_of_json_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchers.manifests.MAX_NODES", 100)
    with pytest.raises(UnreadableText, match="holds more than 100 values"):
        read('{"kind": "List", "items": [' + "0," * 100 + "0]}", "a.json")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_mark_of_the_byte_order_does_no_harm(form: str) -> None:
    data = manifests.manifest_text(POD, form=form).encode("utf-8-sig")
    assert names(read(data, f"a.{form}")) == [("Pod", "a")]


def test_objects_are_named_as_people_name_them() -> None:
    assert subject(("west", "Pod", "shop", "a")) == "Pod shop/a"
    assert subject(("west", "Node", "", "n")) == "Node n"


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("typed", [True, False])
def test_config_maps_are_told_apart_by_their_names(form: str, *, typed: bool) -> None:
    other = manifests.root_certificates("shop", "PEM")
    other["metadata"] = {**other["metadata"], "name": "other"}
    nameless = {**other, "metadata": {}}
    maps = [manifests.mesh_config_map(), manifests.root_certificates("shop", "PEM"), other, nameless]
    document: Any = manifests.object_list(*maps)
    if typed:
        bare = [{key: value for key, value in one.items() if key not in ("apiVersion", "kind")} for one in maps]
        document = {"apiVersion": "v1", "kind": "ConfigMapList", "items": bare}
    found = read(manifests.manifest_text(document, form=form), f"a.{form}")
    assert names(found) == [("MeshConfig", "istio"), ("RootCertificates", "istio-ca-root-cert")]
    assert found.flaws == 1
    assert found.flaw is not None
    assert found.flaw.cause == "ConfigMap without a name: metadata.name is missing"


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_unusable_config_map_spoils_the_fact_of_its_name_alone(form: str) -> None:
    broken = {**manifests.root_certificates("shop", "PEM"), "data": {"root-cert.pem": 5}}
    both = manifests.object_list(broken, manifests.mesh_config_map())
    found = read(manifests.manifest_text(both, form=form), f"a.{form}")
    assert names(found) == [("MeshConfig", "istio")]
    assert found.invalid == {("west", "RootCertificates", "shop", "istio-ca-root-cert")}
