"""All message types of the product, from the descriptor set the build writes, in a pool of their own.

In comes `protos.bin` (see proto/compile.py), out come message classes, enums and their values by name. Nobody but
`xds.protos` imports this: that is the door. The pool is private so that no other package's copy of the files of
Envoy, OpenTelemetry or Google can clash with ours; its messages are therefore not instances of the classes in
`google.protobuf.any_pb2` and its like, well-known types included. A class is made when first asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import api_implementation
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from google.protobuf.message import Message

# Beside this module, wherever that is: where xds-protos is installed too, its `xds/__init__.py` may be the one
# Python found, and importlib.resources would look for data beside that.
DESCRIPTOR_SET: Final = Path(__file__).with_name("protos.bin")


class Namespace:
    """One protobuf package: its messages, enums, enum values and the packages below it are attributes."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Namespace | type[Message] | EnumTypeWrapper | int:
        if name.startswith("__"):  # Python's own questions, such as those of copy or inspect.
            raise AttributeError(name)
        found = _find(self._package, name)
        setattr(self, name, found)  # A name costs one look-up.
        return found

    def __repr__(self) -> str:
        return f"<protobuf package {self._package}>"


def message_class(name: str) -> type[Message]:
    """The class of a message type by its full name, the part of a type URL after the slash; raises KeyError."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))


def top_level() -> dict[str, Namespace]:
    """The packages without parent, by name: envoy, istio, google ..."""
    return {name: Namespace(name) for name in _packages if "." not in name}


def _find(package: str, name: str) -> Namespace | type[Message] | EnumTypeWrapper | int:
    full_name = f"{package}.{name}"
    if full_name in _packages:
        return Namespace(full_name)
    for file_name in _packages[package]:
        file = POOL.FindFileByName(file_name)
        if name in file.message_types_by_name:
            return GetMessageClass(file.message_types_by_name[name])
        for enum in file.enum_types_by_name.values():
            if enum.name == name:
                return EnumTypeWrapper(enum)
            if name in enum.values_by_name:
                return enum.values_by_name[name].number
    raise AttributeError(f"protobuf package {package} has no {name}")


def _load(descriptor_set: Path) -> tuple[DescriptorPool, dict[str, list[str]]]:
    """The pool, and the names of the files of each package; a package that only has packages below it has none."""
    if api_implementation.Type() != "upb":
        # Tens of times slower, and this would be noticed first in a burst: better not to start at all.
        raise ImportError(
            f"protobuf runs on its {api_implementation.Type()!r} backend, Isthmus needs 'upb': unset "
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION, or install a protobuf wheel built for this Python"
        )
    try:
        files = FileDescriptorSet.FromString(descriptor_set.read_bytes())
    except FileNotFoundError as error:
        cure = "the build writes it; in a checkout run `make protos`"
        raise ImportError(f"{descriptor_set} is missing: {cure}") from error
    pool = DescriptorPool()
    packages: dict[str, list[str]] = {}
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
        packages.setdefault(file.package, []).append(file.name)
        parts = file.package.split(".")
        for length in range(1, len(parts)):
            packages.setdefault(".".join(parts[:length]), [])
    return pool, packages


POOL, _packages = _load(DESCRIPTOR_SET)
