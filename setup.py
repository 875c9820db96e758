"""The step that setuptools lacks: writing the message types, see docs/decisions/0001-descriptors-at-build-time.md.

Everything else about the distribution is in pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build

SOURCES = Path("xds", "proto")
DESCRIPTOR_SET, STUBS = "protos.bin", "protos.pyi"


class BuildProtos(Command):
    """Writes the descriptor set and its stubs beside xds/protos.py: in the wheel, or in the checkout if editable."""

    description = "compile the protobuf messages to a descriptor set and typed stubs"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    @property
    def _target(self) -> Path:
        return Path("xds") if self.editable_mode else Path(str(self.build_lib), "xds")

    def run(self) -> None:
        self._target.mkdir(parents=True, exist_ok=True)
        descriptor_set, stubs = self._target / DESCRIPTOR_SET, self._target / STUBS
        # Processes of their own: in this one, `xds` could mean ours or that of xds-protos.
        subprocess.run([sys.executable, SOURCES / "compile.py", descriptor_set], check=True)
        subprocess.run([sys.executable, SOURCES / "stubs.py", descriptor_set, stubs], check=True)

    def get_source_files(self) -> list[str]:
        return [str(path) for pattern in ("*.proto", "*.py") for path in SOURCES.glob(pattern)]

    def get_outputs(self) -> list[str]:
        return [str(self._target / name) for name in (DESCRIPTOR_SET, STUBS)]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class Build(build):
    """The build of setuptools, and the messages after it."""

    sub_commands: ClassVar = [*build.sub_commands, ("build_protos", None)]


setup(cmdclass={"build": Build, "build_protos": BuildProtos})
