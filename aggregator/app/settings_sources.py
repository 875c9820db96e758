"""Where settings come from: for each by itself the flag, else the variable, else the file, else the default.

In: the texts of flags, the environment, a YAML file. Out: Settings, with the origin of each value, or SettingsError,
which names the flag, the variable or the line of the file, what is wrong with it, and the cure. The file is read as a
tree of nodes, not as Python objects, so that `15s`, `on` and `0x1f` arrive as they were written and every error knows
its line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.app.setting_values import Address, ClusterSource, ValueProblem
from aggregator.app.settings import TABLE, Setting, Settings, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import yaml


_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets this variable in every container."""


class Given(msgspec.Struct, frozen=True, gc=False):
    """The texts a source gives for a setting, and the source as a person would name it."""

    texts: tuple[str, ...]
    origin: str


def load(flags: Mapping[str, str | Sequence[str] | None], environ: Mapping[str, str]) -> Settings:
    """The settings in force, from `flags` (by field name; None and an empty list mean not given) and `environ`.

    An empty variable counts as unset. A list from one source replaces that of another whole. Raises SettingsError.
    """
    given = {**_from_variables(environ), **_from_flags(flags)}
    base: dict[str, Path] = {}
    if "config" in given:
        file = Path(given["config"].texts[0])
        in_file = _read_file(file, given["config"].origin, {setting.key: setting for setting in TABLE if setting.key})
        base = {name: file.parent for name in in_file if name not in given}
        given = {**in_file, **given}
    chosen: dict[str, Any] = {}
    for setting in TABLE:
        if setting.name in given:
            chosen[setting.name] = _parse(setting, given[setting.name], base.get(setting.name, Path()))
    if "local" not in chosen and not environ.get(_IN_CLUSTER):
        raise SettingsError(
            "--local",
            "is missing, and this process does not run in a cluster",
            "name the home cluster and its directory or kubeconfig, such as --local west=./west",
        )
    settings = Settings(**chosen, origins={name: entry.origin for name, entry in given.items()})
    _check_clusters(settings)
    _check_listeners(settings)
    return settings


def unknown_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """ISTHMUS_* variables that set nothing, each with the nearest that would (or ""): most likely misspelt.

    Variables that Kubernetes itself adds for a Service called isthmus-... are left out; these must not stop the
    process.
    """
    from difflib import get_close_matches

    known = [setting.variable for setting in TABLE]
    found = []
    for variable in sorted(environ):
        injected = "_SERVICE_" in variable or variable.endswith("_PORT") or "_PORT_" in variable
        if variable.startswith("ISTHMUS_") and variable not in known and not injected:
            found.append((variable, next(iter(get_close_matches(variable, known, 1)), "")))
    return found


def _from_flags(flags: Mapping[str, str | Sequence[str] | None]) -> dict[str, Given]:
    given = {}
    for setting in TABLE:
        value = flags.get(setting.name)
        if value is None or value == [] or value == ():
            continue
        texts = (value,) if isinstance(value, str) else tuple(value)
        given[setting.name] = Given(_split(setting, texts), setting.flag)
    return given


def _from_variables(environ: Mapping[str, str]) -> dict[str, Given]:
    return {
        setting.name: Given(_split(setting, (environ[setting.variable],)), setting.variable)
        for setting in TABLE
        if environ.get(setting.variable)
    }


def _split(setting: Setting, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The entries of a list; a path with a comma in it has to stand in the configuration file."""
    if not setting.many:
        return texts
    return tuple(entry.strip() for text in texts for entry in text.split(",") if entry.strip())


def _parse(setting: Setting, given: Given, base: Path) -> Any:
    try:
        parsed = tuple(_rebase(setting.parse(text), base) for text in given.texts)
    except ValueProblem as error:
        raise SettingsError(given.origin, error.problem, error.cure) from None
    return parsed if setting.many else parsed[0]


def _rebase(value: Any, base: Path) -> Any:
    """A relative path, seen from the directory of the file it was written in."""
    if isinstance(value, ClusterSource):
        return ClusterSource(value.name, base / value.path)
    return base / value if isinstance(value, Path) else value


def _check_clusters(settings: Settings) -> None:
    seen = {settings.home}
    for source in settings.remote:
        if source.name in seen:
            raise SettingsError(
                settings.origins["remote"],
                f"cluster {source.name!r} is given twice",
                "give every cluster its own name",
            )
        seen.add(source.name)


def _check_listeners(settings: Settings) -> None:
    seen: dict[Address, str] = {}
    for name in ("xds", "xds_plaintext", "health", "admin"):
        address: Address | None = getattr(settings, name)
        if address is None or address.port == 0:
            continue
        flag = f"--{name.replace('_', '-')}"
        if address in seen:
            raise SettingsError(
                settings.origins.get(name, flag),
                f"{address} is also the address of {seen[address]}",
                "give every listener its own port (0 picks a free one)",
            )
        seen[address] = flag


def _read_file(file: Path, named_by: str, by_key: Mapping[str, Setting]) -> dict[str, Given]:
    """What `file` sets, by field name. Raises SettingsError: unreadable, not YAML, an unknown key, a wrong shape."""
    import yaml

    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise SettingsError(
            named_by, f"{file} cannot be read: {error.strerror}", "check path and permissions"
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(named_by, f"{file} is not UTF-8 text", "give a YAML file") from None
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{file}{line}", f"is not YAML: {error.problem}", "correct the syntax") from None
    except yaml.YAMLError as error:
        raise SettingsError(str(file), f"is not YAML: {error}", "correct the syntax") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError(f"{file} line {_line(root)}", "is no mapping", "write one `key: value` per line")
    given: dict[str, Given] = {}
    for key_node, value_node in root.value:
        where = f"{file} line {_line(key_node)}"
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
        setting = by_key.get(key)
        if setting is None:
            raise SettingsError(where, f"key {key!r} is unknown", _nearest(key, by_key))
        if setting.name in given:
            raise SettingsError(where, f"key {key!r} is given twice", "keep one of them")
        texts = _texts(value_node, setting, f"{where}, key {key}")
        if texts is not None:
            given[setting.name] = Given(texts, f"{where}, key {key}")
    return given


def _texts(node: yaml.Node, setting: Setting, where: str) -> tuple[str, ...] | None:
    """The texts of a value; None for an empty value, which sets nothing."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else (node.value,)
    if isinstance(node, yaml.MappingNode) and setting.value.startswith("NAME="):
        pairs = [(name, source) for name, source in node.value]
        if all(isinstance(part, yaml.ScalarNode) for pair in pairs for part in pair) and (
            setting.many or len(pairs) == 1
        ):
            return tuple(f"{name.value}={source.value}" for name, source in pairs)
    if isinstance(node, yaml.SequenceNode) and setting.many:
        entries = [entry for entry in node.value if isinstance(entry, yaml.ScalarNode)]
        if len(entries) == len(node.value):
            return tuple(entry.value for entry in entries)
    shape = f"a list of {setting.value}" if setting.many else f"a single {setting.value}"
    raise SettingsError(where, "the value has the wrong shape", f"write {shape}")


def _nearest(key: str, by_key: Mapping[str, Setting]) -> str:
    from difflib import get_close_matches

    # `remoteTimeout` and `remote_timeout` are what people try first.
    plain = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in key).replace("_", "-")
    nearest = get_close_matches(plain, by_key, 1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known keys are {', '.join(by_key)}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
