"""The `isthmus` command: its subcommands, and what they have in common.

In: the command line. Out: exit codes 0 (done, or stopped as told), 1 (failed), 2 (wrong usage); those of commands that
ask a control plane are in exits. Data goes to stdout, everything else to stderr. Help and errors are plain text, so
that they are read the same in a terminal, a log and a test. Imports as little as it can: asking for help must not load
gRPC or a Kubernetes client.
"""

from __future__ import annotations

import typer

from aggregator import __version__
from aggregator.cli.bootstrap import print_bootstrap
from aggregator.cli.clusters import app as clusters
from aggregator.cli.demo import demo
from aggregator.cli.domains import app as domains
from aggregator.cli.reference import settings_reference
from aggregator.cli.remote_secret import create_remote_secret
from aggregator.cli.run import run
from aggregator.cli.schemas import print_schema

app = typer.Typer(
    name="isthmus",
    help="A multicluster control plane for Istio's ambient mesh.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
app.command(name="run", epilog="Every option is also a variable ISTHMUS_... and a key of the --config file.")(run)
app.command(name="bootstrap")(print_bootstrap)
app.command(name="demo")(demo)
app.add_typer(clusters, name="clusters")
app.add_typer(domains, name="domains")
app.command(name="create-remote-secret")(create_remote_secret)
app.command(name="schema")(print_schema)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def settings() -> None:
    """Print the reference of all settings, as Markdown."""
    print(settings_reference(), end="")


def main() -> None:
    """The entry point of the installed command."""
    app(prog_name="isthmus")


if __name__ == "__main__":
    main()
