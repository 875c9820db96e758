"""Build step: writes the types of all messages in a descriptor set as one stub file, `protos.pyi`.

In comes the `protos.bin` of compile.py, out come nested classes, one per protobuf package, so that messages of equal
names (Address, Config, RBAC) stay apart and type checkers see `xds.protos` as it is at run time. Runs as a script in
the isolated environment of the build; nothing of the product may be imported here. Fields whose names are Python
keywords have no attribute at run time either and are left out.

    python stubs.py DESCRIPTOR_SET OUTPUT
"""

from __future__ import annotations

import keyword
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEADER: Final = '''\
"""Types of `xds.protos`, written by the build from the descriptors. Do not edit."""

import builtins
import collections.abc
import datetime
import typing

from google.protobuf.descriptor_pool import DescriptorPool as _DescriptorPool
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import well_known_types as _well_known_types
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper as _EnumTypeWrapper
from google.protobuf.message import Message as _Message

POOL: _DescriptorPool

def message_class(name: builtins.str) -> builtins.type[_Message]: ...
'''

SCALARS: Final = {
    FieldDescriptorProto.TYPE_BOOL: "builtins.bool",
    FieldDescriptorProto.TYPE_BYTES: "builtins.bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "builtins.float",
    FieldDescriptorProto.TYPE_ENUM: "builtins.int",
    FieldDescriptorProto.TYPE_FLOAT: "builtins.float",
    FieldDescriptorProto.TYPE_STRING: "builtins.str",
}  # All others are integers.

# Well-known types with methods of their own at run time.
MIXINS: Final = {
    f".google.protobuf.{name}": f"_well_known_types.{name}"
    for name in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp")
}

# Python values that the runtime takes for a well-known type, in constructors and assignments.
ACCEPTED: Final = {
    ".google.protobuf.Duration": "datetime.timedelta",
    ".google.protobuf.ListValue": "collections.abc.Sequence[builtins.object]",
    ".google.protobuf.Struct": "collections.abc.Mapping[builtins.str, builtins.object]",
    ".google.protobuf.Timestamp": "datetime.datetime",
}

# What annotations start with, beside the names of top-level packages.
MODULES: Final = ("builtins", "collections", "datetime", "typing")

INDENT: Final = "    "


def indented(lines: Iterable[str]) -> Iterator[str]:
    """The lines one level further in."""
    return (INDENT + line for line in lines)


def literal(names: Iterable[str]) -> str:
    """A type for exactly these strings."""
    return f"typing.Literal[{', '.join(repr(name) for name in names)}]"


class Field:
    """One field of a message, and the types it has as attribute and as argument."""

    type: str
    argument: str

    def __init__(self, field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> None:
        self.name = field.name
        self.is_message = field.type == FieldDescriptorProto.TYPE_MESSAGE
        self.repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
        # An optional scalar has presence as well, and so has every member of a oneof.
        self.presence = not self.repeated and (self.is_message or field.HasField("oneof_index"))
        self.oneof = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
        self.assigned = ""
        entry = entries.get(field.type_name)
        if entry is not None:
            key, value = (Field(part, {}) for part in entry.field)
            kind = "MessageMap" if value.is_message else "ScalarMap"
            self.type = f"_containers.{kind}[{key.type}, {value.type}]"
            self.argument = f"collections.abc.Mapping[{key.type}, {value.type}]"
            return
        item = field.type_name.removeprefix(".") if self.is_message else SCALARS.get(field.type, "builtins.int")
        if self.repeated:
            kind = "RepeatedCompositeFieldContainer" if self.is_message else "RepeatedScalarFieldContainer"
            self.type = f"_containers.{kind}[{item}]"
            self.argument = f"collections.abc.Iterable[{item}]"
            return
        self.type = self.argument = item
        if field.type_name in ACCEPTED:
            self.argument = self.assigned = f"{item} | {ACCEPTED[field.type_name]}"

    def attribute(self) -> Iterator[str]:
        """Scalars can be assigned, messages and containers only be changed in place."""
        if not self.repeated and not self.is_message:
            yield f"{self.name}: {self.type}"
            return
        yield "@builtins.property"
        yield f"def {self.name}(self) -> {self.type}: ..."
        if self.assigned:
            yield f"@{self.name}.setter"
            yield f"def {self.name}(self, value: {self.assigned}) -> None: ..."


def enum_stub(enum: EnumDescriptorProto) -> Iterator[str]:
    """The enum as a class with its values, and the values beside it, as protobuf scopes them."""
    values = [value.name for value in enum.value if not keyword.iskeyword(value.name)]
    yield f"class _{enum.name}(_EnumTypeWrapper):"
    yield from indented(f"{name}: builtins.int" for name in values)
    yield f"{enum.name}: _{enum.name}"
    yield from (f"{name}: builtins.int" for name in values)


def message_stub(message: DescriptorProto, full_name: str) -> Iterator[str]:
    """The class of a message with everything declared inside it; raises ValueError for a name that cannot be typed."""
    bases = [MIXINS[full_name], "_Message"] if full_name in MIXINS else ["_Message"]
    yield f"class {message.name}({', '.join(bases)}):"
    entries = {f"{full_name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    fields = [Field(field, entries) for field in message.field if not keyword.iskeyword(field.name)]
    # Annotations inside a class see its attributes before the names of the module.
    roots = {*MODULES, *(field.type_name.split(".")[1] for field in message.field if field.type_name)}
    declared = {field.name for field in fields}
    declared |= {nested.name for nested in message.nested_type} | {enum.name for enum in message.enum_type}
    if hidden := roots & declared:
        raise ValueError(f"{full_name[1:]}: {', '.join(sorted(hidden))} would hide what its annotations start with")
    for enum in message.enum_type:
        yield from indented(enum_stub(enum))
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from indented(message_stub(nested, f"{full_name}.{nested.name}"))
    for field in fields:
        yield from indented(field.attribute())
    arguments = [f"{field.name}: {field.argument} | None = ..." for field in fields if field.name != "self"]
    parameters = ", ".join(["self", "*", *arguments] if arguments else ["self"])
    yield f"{INDENT}def __init__({parameters}) -> None: ..."
    yield from indented(presence_stub(message, fields))


def presence_stub(message: DescriptorProto, fields: list[Field]) -> Iterator[str]:
    """HasField, ClearField and WhichOneof, for the names that the message knows."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for field in fields:
        if field.oneof is not None:
            members[message.oneof_decl[field.oneof].name].append(field.name)
    present = [field.name for field in fields if field.presence] + list(members)
    if present:
        yield f"def HasField(self, field_name: {literal(present)}) -> builtins.bool: ..."
    if fields:
        yield f"def ClearField(self, field_name: {literal([*(field.name for field in fields), *members])}) -> None: ..."
    for oneof, names in members.items():
        if len(members) > 1:
            yield "@typing.overload"
        yield f"def WhichOneof(self, oneof_group: {literal([oneof])}) -> {literal(names)} | None: ..."


class Package:
    """One protobuf package: what its files declare, and the packages below it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, DescriptorProto]] = []
        self.enums: list[EnumDescriptorProto] = []
        self.children: dict[str, Package] = {}

    def stub(self) -> Iterator[str]:
        """The body of the class that stands for the package."""
        for enum in self.enums:
            yield from enum_stub(enum)
        for full_name, message in self.messages:
            yield from message_stub(message, full_name)
        for name, child in self.children.items():
            yield f"class {name}:"
            yield from indented(child.stub())
            yield f"{INDENT}..."  # A package may hold nothing but extensions.


def packages(files: FileDescriptorSet) -> Package:
    """The tree of packages; the root is the module."""
    root = Package()
    for file in files.file:
        package = root
        for part in file.package.split("."):
            package = package.children.setdefault(part, Package())
        package.messages += ((f".{file.package}.{message.name}", message) for message in file.message_type)
        package.enums += file.enum_type
    return root


def main() -> None:
    """Write the stub file, the same for the same descriptors."""
    files = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_text("\n".join((HEADER, *packages(files).stub(), "")), encoding="utf-8")


if __name__ == "__main__":
    main()
