from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from typer.testing import CliRunner

import aggregator
from aggregator.cli.main import app
from aggregator.cli.schemas import Described, schema_text
from aggregator.operate.cluster_list import ClusterList
from tests.kit.clusters import cluster, unread

REFERENCE = Path(aggregator.__file__).parents[1] / "docs" / "reference"


@pytest.mark.parametrize("command", Described)
def test_the_schema_in_docs_is_up_to_date(command: Described) -> None:
    file = REFERENCE / f"{command}.schema.json"
    assert file.read_text() == schema_text(command), f"run: isthmus schema {command} > docs/reference/{file.name}"


@pytest.mark.parametrize("command", Described)
def test_a_schema_is_one_that_validators_take(command: Described) -> None:
    printed = CliRunner().invoke(app, ["schema", command])
    jsonschema.Draft202012Validator.check_schema(json.loads(printed.stdout))


@pytest.mark.parametrize("command", Described)
def test_every_field_of_a_schema_says_what_it_means(command: Described) -> None:
    for definition in json.loads(schema_text(command))["$defs"].values():
        assert definition["description"]
        # The tag, which has one value, is made by msgspec.
        fields = [(name, field) for name, field in definition["properties"].items() if len(field.get("enum", ())) != 1]
        assert [name for name, field in fields if not field.get("description")] == []


def test_clusters_keep_to_their_schema_and_others_do_not() -> None:
    schema = json.loads(schema_text(Described.CLUSTERS))
    unknown = cluster(lag=None, since=None, token_expires=None, kinds=(unread("Pod"),))
    for content in (ClusterList(items=(cluster(), unknown)), ClusterList(items=()), unknown):
        jsonschema.validate(json.loads(msgspec.json.encode(content)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"apiVersion": "isthmus.dev/v1", "kind": "ClusterList", "items": [{}]}, schema)
