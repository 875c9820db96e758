"""`isthmus schema`: the JSON Schema of what a command prints with `-o json`.

In: the name of the command. Out: JSON. The files docs/reference/*.schema.json are this text, and a test keeps them so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer


def _clusters() -> dict[str, Any]:
    from aggregator.operate.cluster_list import schema

    return schema()


def _domains() -> dict[str, Any]:
    from aggregator.operate.domain_list import schema

    return schema()


class Described(StrEnum):
    """The commands whose JSON has a schema."""

    CLUSTERS = "clusters"
    DOMAINS = "domains"


SCHEMAS: Mapping[Described, Callable[[], dict[str, Any]]] = {
    Described.CLUSTERS: _clusters,
    Described.DOMAINS: _domains,
}


def schema_text(command: Described) -> str:
    """The schema as it is printed."""
    return json.dumps(SCHEMAS[command](), indent=2) + "\n"


def print_schema(
    command: Annotated[Described, typer.Argument(metavar="COMMAND", help="One of: clusters, domains.")],
) -> None:
    """Print the JSON Schema of what a command prints with -o json."""
    print(schema_text(command), end="")
