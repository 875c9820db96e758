"""The documents that operators are told: what all of them have in common, whatever they are about.

In: nothing. Out: types of fields, and the JSON Schema of a document. Moments are RFC 3339 in UTC and durations seconds;
what is unknown is null. Loads nothing heavy, since the command line needs it too.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

API_VERSION: Literal["isthmus.dev/v1"] = "isthmus.dev/v1"

Time = Annotated[datetime, Meta(tz=True)]
Moment = Time | None
ApiVersion = Annotated[
    Literal["isthmus.dev/v1"], Meta(description="Within a version fields are added, never changed or removed.")
]
Reason = Annotated[str, Meta(description="Why the state is not a better one; empty where there is nothing to say.")]
Replica = Annotated[str, Meta(description="The replica that says so: the name of its host.")]
Observed = Annotated[Time, Meta(description="When the replica said so.")]


def schema_of(kinds: Any, command: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `isthmus <command>`, its get, and the page of that name tell."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Output of isthmus {command} and isthmus {command} get, and of /{command}",
        **msgspec.json.schema(kinds),
    }
