"""Every way to install the product starts it, with and without xds-protos beside it.

Environments are empty virtual ones; the product's dependencies come from the environment of the tests by a `.pth`
file, so that only the product is built, in pip's own isolation. That needs a package index: without one these tests
skip and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import aggregator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "isthmus-tests")

# Nothing of the caller's shell may decide which modules are found, or how help is printed.
INHERITED = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE", "ISTHMUS_"))}
VARIABLES = {**INHERITED, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


class Environment(NamedTuple):
    """An environment in which the product can be started."""

    python: Path
    start: tuple[str, ...]
    variables: dict[str, str]

    def run(self, *arguments: str) -> str:
        """What the command printed; fails the test if it failed."""
        return run(*arguments, variables=self.variables, cwd=self.python.parent)

    def evaluate(self, *statements: str) -> str:
        """What the Python statements printed, in a process of their own."""
        return self.run(str(self.python), "-W", "error", "-c", "\n".join(statements)).strip()


def run(*arguments: str, variables: dict[str, str] | None = None, cwd: Path) -> str:
    done = subprocess.run(
        arguments, cwd=cwd, env={**VARIABLES, **(variables or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def pip(*arguments: str, cwd: Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments, cwd=cwd)


def empty_environment(directory: Path) -> Path:
    """The Python of a new environment that has the dependencies of the product, but not the product."""
    run(sys.executable, "-m", "venv", "--without-pip", str(directory), cwd=directory.parent)
    dependencies = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site,) = directory.glob("lib/python*/site-packages")
    # A directory that a .pth file names is searched last, and its own .pth files are not read: an editable
    # installation of the product in the environment of the tests stays invisible.
    (site / "dependencies.pth").write_text("\n".join(dependencies) + "\n", encoding="utf-8")
    return directory / "bin" / "python"


@pytest.fixture(scope="module")
def xds_protos() -> Path:
    """The wheel of xds-protos, in the version the build requires."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    (requirement,) = (entry for entry in requires if entry.startswith("xds-protos"))
    version = requirement.partition("==")[2]
    held = CACHE / "wheels"
    held.mkdir(parents=True, exist_ok=True)
    if not (wheels := list(held.glob(f"xds_protos-{version}-*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(held), requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no package index to build from: {done.stderr.strip().splitlines()[-1]}")
        wheels = list(held.glob(f"xds_protos-{version}-*.whl"))
    return wheels[0]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, xds_protos: Path) -> Path:
    """A copy of the checkout as it is before any build; depends on xds_protos because nothing builds without it."""
    copy = tmp_path_factory.mktemp("install") / "checkout"
    unbuilt = shutil.ignore_patterns(
        ".*", "bench-results", "build", "dist", "*.egg-info", "__pycache__", "protos.bin", "protos.pyi"
    )
    shutil.copytree(ROOT, copy, ignore=unbuilt)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    """What `pip install .` builds and then installs."""
    directory = checkout.parent / "wheels"
    pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(checkout), cwd=checkout.parent)
    return next(directory.glob("isthmus-*.whl"))


def install(kind: str, request: pytest.FixtureRequest, python: Path, checkout: Path) -> Environment:
    """The product in the environment of `python`, in one of the ways the README names."""
    script = (str(python.with_name("isthmus")),)
    into = ("--python", str(python), "install", "--no-deps")
    if kind == "installed":
        pip(*into, str(request.getfixturevalue("wheel")), cwd=checkout.parent)
        return Environment(python, script, {})
    if kind == "editable":
        pip(*into, "--editable", str(checkout), cwd=checkout.parent)
        return Environment(python, script, {})
    for written in ("protos.bin", "protos.pyi"):  # By an editable installation before.
        (checkout / "xds" / written).unlink(missing_ok=True)
    run("make", "protos", f"PYTHON={sys.executable}", cwd=checkout)
    return Environment(python, (str(python), "-m", "aggregator.cli.main"), {"PYTHONPATH": str(checkout)})


@pytest.fixture(scope="module", params=["installed", "editable", "checkout"])
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Environment:
    """The product without xds-protos."""
    python = empty_environment(tmp_path_factory.mktemp("alone") / "environment")
    return install(request.param, request, python, checkout)


@pytest.fixture(scope="module", params=["installed", "editable", "checkout"])
def beside(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkout: Path, xds_protos: Path
) -> Environment:
    """The product, and xds-protos installed after it."""
    python = empty_environment(tmp_path_factory.mktemp("beside") / "environment")
    environment = install(request.param, request, python, checkout)
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(xds_protos), cwd=checkout.parent)
    return environment


def test_it_starts(alone: Environment) -> None:
    assert "--local" in alone.run(*alone.start, "run", "--help")


def test_it_starts_beside_xds_protos(beside: Environment) -> None:
    assert "--local" in beside.run(*beside.start, "run", "--help")


def test_the_modules_are_those_that_were_installed(alone: Environment) -> None:
    modules = "aggregator", "watchers", "xds.protos"
    files = alone.evaluate(f"import {', '.join(modules)}", f"print({', '.join(f'{m}.__file__' for m in modules)})")
    assert not [file for file in files.split() if Path(file).is_relative_to(ROOT)]


def test_messages_are_found(alone: Environment) -> None:
    message = "protos.envoy.service.discovery.v3.DeltaDiscoveryRequest(type_url='t')"
    assert alone.evaluate("from xds import protos", f"print({message}.SerializeToString())") == r"b'\x12\x01t'"


def test_messages_of_both_are_found_in_one_process(beside: Environment) -> None:
    found = beside.evaluate(
        "from xds import protos",
        "from xds.core.v3.authority_pb2 import Authority",
        "print(Authority.DESCRIPTOR.full_name, protos.xds.core.v3.Authority.DESCRIPTOR.full_name)",
        "print(Authority is protos.xds.core.v3.Authority)",
    )
    assert found == "xds.core.v3.Authority xds.core.v3.Authority\nFalse"


def test_xds_protos_is_no_dependency(alone: Environment) -> None:
    assert alone.evaluate("import importlib.util", "print(importlib.util.find_spec('xds.core'))") == "None"


def test_the_otlp_exporter_imports(alone: Environment) -> None:
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    alone.evaluate(*(f"import {module}" for module in ("xds.protos", exporter, "prometheus_client")))


def test_the_version_is_that_of_the_package(wheel: Path) -> None:
    assert wheel.name == f"isthmus-{aggregator.__version__}-py3-none-any.whl"


def test_the_wheel_holds_our_packages_and_no_others(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"aggregator", "isthmus", "watchers", "xds"}


def test_the_wheel_holds_the_messages_and_their_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"xds/protos.bin", "xds/protos.pyi", "xds/py.typed"} <= set(names)
