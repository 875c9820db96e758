from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aggregator
from aggregator.app.settings import TABLE
from aggregator.cli.main import app
from aggregator.cli.reference import settings_reference

ROOT = Path(aggregator.__file__).parents[1]
HEAVY = ("grpc", "kubernetes_asyncio", "google.protobuf", "opentelemetry", "starlette", "uvicorn", "rich", "yaml")


@pytest.fixture
def isthmus() -> CliRunner:
    return CliRunner()


def test_help_lists_every_setting_with_its_value_and_default(isthmus: CliRunner) -> None:
    shown = " ".join(isthmus.invoke(app, ["run", "--help"]).stdout.split())
    for setting in TABLE:
        written = f"/ --no-{setting.word}" if setting.switch else setting.value
        assert f"{setting.flag} {written} " in shown
        assert " ".join(setting.help.split()[:4]) in shown
    assert "[0.0.0.0:15012]" in shown


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom aggregator.cli.main import app\n"
        "try:\n    app(['run', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_takes_less_than_half_a_second_of_cpu() -> None:
    program = (
        "import time\nfrom aggregator.cli.main import app\n"
        "try:\n    app(['run', '--help'])\nexcept SystemExit:\n    print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout.splitlines()[-1]) < 0.5


def test_an_unknown_flag_is_answered_with_the_ones_that_may_have_been_meant(isthmus: CliRunner) -> None:
    done = isthmus.invoke(app, ["run", "--local", "west=west", "--drian", "5s"])
    assert done.exit_code == 2
    assert "No such option: --drian" in done.stderr
    assert "--drain" in done.stderr


def test_a_wrong_setting_is_one_line_on_stderr_and_exit_code_2(isthmus: CliRunner) -> None:
    done = isthmus.invoke(app, ["run", "--local", "west=west", "--drain", "5"], env={})
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "isthmus: --drain: '5' is not a duration; write numbers with units, such as 500ms, 30s or 5m\n"
    )


def test_without_a_home_cluster_nothing_is_run(isthmus: CliRunner) -> None:
    done = isthmus.invoke(app, ["run"], env={"ISTHMUS_LOCAL": ""})
    assert done.exit_code == 2
    assert done.stderr.startswith("isthmus: --local: is missing")


def test_version_is_that_of_the_package(isthmus: CliRunner) -> None:
    assert isthmus.invoke(app, ["version"]).stdout == f"{aggregator.__version__}\n"


def test_settings_prints_the_reference(isthmus: CliRunner) -> None:
    assert isthmus.invoke(app, ["settings"]).stdout == settings_reference()


def test_the_reference_in_docs_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert written == settings_reference(), "run: isthmus settings > docs/reference/settings.md"


def test_every_row_of_the_reference_has_all_its_cells() -> None:
    rows = [line for line in settings_reference().splitlines() if line.startswith("| `--")]
    assert len(rows) == len(TABLE)
    for row in rows:
        assert row.replace("\\|", "").count("|") == 7, row
