"""The reference of all settings as Markdown: docs/reference/settings.md is this text, and a test keeps it so.

In: the table of settings. Out: text. Says nothing that is not in the table, but how the sources go together.
"""

from __future__ import annotations

from aggregator.app.settings import TABLE, Setting

_HEAD = """\
# Settings

Made by `isthmus settings`; change the table in `aggregator/app/settings.py` and write this file again.

Each setting has one word in three forms: a flag of `isthmus run`, an environment variable, and a key of the YAML file
that `--config` names. For each setting by itself the flag goes first, then the variable, then the file, then the
default. An empty variable counts as unset. A list is given by repeating the flag, by commas, or as a YAML list
(clusters also as a mapping of names to sources); a list from one source replaces that of another whole. Relative paths
in the file start at the directory of the file. Durations are numbers with units: `500ms`, `30s`, `1m30s`, `2h`. At its
start the process logs every setting with its value and where it came from.

| Flag | Variable | Key | Value | Default | Meaning |
|---|---|---|---|---|---|
"""


def settings_reference() -> str:
    """The whole document."""
    return _HEAD + "".join(map(_row, TABLE))


def default_text(setting: Setting) -> str:
    """The default as a person would write it: `required` and `off` where there is none."""
    if setting.required:
        return "required"
    return setting.text(setting.default) or ("none" if setting.many else "off")


def _row(setting: Setting) -> str:
    default = default_text(setting)
    shown = default if default in ("required", "none", "off") else f"`{default.replace(',', ', ')}`"
    value = setting.value.replace("|", "\\|") + (" ..." if setting.many else "")
    key = f"`{setting.key}`" if setting.key else "-"
    return f"| `{setting.flag}` | `{setting.variable}` | {key} | {value} | {shown} | {setting.help} |\n"
