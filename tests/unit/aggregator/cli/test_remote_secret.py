from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from aggregator.cli.main import app
from tests.kit.certificates import Issuer, pem
from watchers.kubernetes import operator_access
from watchers.kubernetes.kubeconfig import read_kubeconfig
from watchers.kubernetes.operator_access import Refusal, Token, Trouble
from watchers.kubernetes.remote_secret import Reach

TOKEN = "a-reader's-own"
SERVER = "https://10.9.0.4:6443"
CA = b64encode(pem(Issuer("east").certificate)).decode()


class FakeOperator:
    """What was asked of a cluster; `grants` is how many seconds of a token it grants, `refuses` what it does not do."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.applied: list[tuple[str, str]] = []
        self.asked: list[tuple[str, str, float]] = []
        self.grants: float | None = None
        self.refuses: dict[str, Refusal] = {}
        self.named: tuple[object, object] | None = None

    async def apply(self, manifest: dict[str, Any]) -> None:
        refusal = self.refuses.pop(manifest["kind"], None)
        if refusal:
            raise refusal
        self.applied.append((manifest["kind"], manifest["metadata"]["name"]))

    async def create_token(self, namespace: str, account: str, seconds: float) -> Token:
        if "Token" in self.refuses:
            raise self.refuses["Token"]
        self.asked.append((namespace, account, seconds))
        return Token(TOKEN.replace("'", ""), time.time() + (self.grants or seconds))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> FakeOperator:
    fake = FakeOperator(Reach(SERVER, CA))

    @asynccontextmanager
    async def operator(kubeconfig: object, context: object, *, seconds: float) -> AsyncIterator[FakeOperator]:
        fake.named = (kubeconfig, context)
        yield fake

    monkeypatch.setattr(operator_access, "operator", operator)
    return fake


def run(*words: str, name: str = "east") -> Result:
    return CliRunner().invoke(app, ["create-remote-secret", "--name", name, *words])


def secret(done: Result) -> Any:
    assert done.exit_code == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_stdout_is_the_labelled_secret_and_nothing_else(there: FakeOperator) -> None:
    document = secret(run("--context", "east-admin"))
    assert (document["apiVersion"], document["kind"]) == ("v1", "Secret")
    assert document["metadata"] == {
        "name": "isthmus-remote-secret-east",
        "namespace": "istio-system",
        "labels": {"istio/multiCluster": "true"},
        "annotations": {"networking.istio.io/cluster": "east"},
    }
    assert list(document["stringData"]) == ["east"]
    assert there.named == (None, "east-admin")


def test_its_kubeconfig_is_one_that_is_read_and_holds_the_readers_token_alone(there: FakeOperator) -> None:
    read = read_kubeconfig(secret(run())["stringData"]["east"].encode())
    assert (read.server, read.token, read.client_certificate) == (SERVER, "a-readers-own", "")
    assert read.ca_data.startswith("-----BEGIN CERTIFICATE-----")


def test_nothing_secret_is_on_stderr(there: FakeOperator) -> None:
    assert "a-readers-own" not in run("--grant", "token-renewal").stderr


def test_account_role_and_binding_are_applied_before_the_token_is_made(there: FakeOperator) -> None:
    run()
    assert there.applied == [
        ("ServiceAccount", "isthmus-reader"),
        ("ClusterRole", "isthmus-reader"),
        ("ClusterRoleBinding", "isthmus-reader"),
    ]
    assert there.asked == [("istio-system", "isthmus-reader", 720 * 3600.0)]


def test_it_says_what_was_created_and_until_when_the_token_is_valid(there: FakeOperator) -> None:
    said = run().stderr
    assert "created ServiceAccount isthmus-reader, ClusterRole isthmus-reader (7 rules, no secrets)" in said
    assert "token valid until 20" in said
    assert "nobody renews the token" in said


def test_what_is_granted_is_applied_and_said(there: FakeOperator) -> None:
    done = run("--grant", "token-renewal", "--grant", "config-maps")
    assert ("Role", "isthmus-reader-token-renewal") in there.applied
    assert ("ClusterRole", "isthmus-reader-config-maps") in there.applied
    assert "renews the token at 2/3 of its life" in done.stderr


def test_a_namespace_that_is_not_there_is_created(there: FakeOperator) -> None:
    there.refuses["ServiceAccount"] = Refusal("refused", "namespaces not found", status=404)
    assert "created Namespace mesh" in run("--namespace", "mesh").stderr
    assert there.applied[:2] == [("Namespace", "mesh"), ("ServiceAccount", "isthmus-reader")]


def test_rotating_only_makes_a_token(there: FakeOperator) -> None:
    done = run("--rotate")
    assert secret(done)["metadata"]["name"] == "isthmus-remote-secret-east"
    assert there.applied == []
    assert "the old one stays valid" in done.stderr


def test_rotating_what_was_never_created_says_how_to_create_it(there: FakeOperator) -> None:
    there.refuses["Token"] = Refusal("refused", "cannot create a token: not found; correct what it names", status=404)
    done = run("--rotate")
    assert done.exit_code == 1
    assert "run it once without --rotate" in done.stderr


def test_a_token_of_less_time_than_asked_for_is_told(there: FakeOperator) -> None:
    there.grants = 24 * 3600.0
    assert "the API server granted about 24h of the 720h asked for" in run().stderr


def test_another_server_takes_the_place_of_the_operators(there: FakeOperator) -> None:
    document = secret(run("--server", "https://east.example:443/", "--tls-server-name", "kubernetes"))
    read = read_kubeconfig(document["stringData"]["east"].encode())
    assert (read.server, read.tls_server_name) == ("https://east.example:443", "kubernetes")


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
def test_a_server_of_this_machine_is_warned_of(there: FakeOperator, server: str) -> None:
    there.reach = Reach(server, CA)
    done = run()
    assert done.exit_code == 0
    assert "warning" in done.stderr and "--server" in done.stderr


@pytest.mark.parametrize(
    ("server", "cause"),
    [("http://10.9.0.4", "plain http"), ("https://169.254.169.254", "machine's own services"), ("east", "no URL")],
)
def test_a_server_the_control_plane_would_refuse_is_refused_before_anything_is_made(
    there: FakeOperator, server: str, cause: str
) -> None:
    done = run("--server", server)
    assert done.exit_code == 64
    assert "--server" in done.stderr and cause in done.stderr
    assert (there.applied, there.asked) == ([], [])


def test_a_context_that_does_not_verify_its_server_is_refused_before_anything_is_made(there: FakeOperator) -> None:
    there.reach = Reach(SERVER, insecure=True)
    done = run()
    assert done.exit_code == 65
    assert "certificate-authority-data" in done.stderr
    assert (there.applied, there.asked, done.stdout) == ([], [], "")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--token-ttl", "5m"), "--token-ttl"),
        (("--token-ttl", "a month"), "--token-ttl"),
        (("--namespace", "Mesh"), "--namespace"),
        (("--service-account", "a/b"), "--service-account"),
        (("--secret-name", "A"), "--secret-name"),
        (("--timeout", "soon"), "--timeout"),
        (("--rotate", "--grant", "config-maps"), "--rotate"),
    ],
)
def test_a_wrong_option_is_named_with_its_cure(there: FakeOperator, words: tuple[str, ...], option: str) -> None:
    done = run(*words)
    assert done.exit_code == 64
    assert option in done.stderr
    assert there.named is None


def test_a_name_that_can_be_no_id_is_refused(there: FakeOperator) -> None:
    done = run(name="a/b")
    assert done.exit_code == 64
    assert "--name" in done.stderr


def test_an_id_with_letters_no_object_may_have_gets_a_secret_of_a_name_it_may_have(there: FakeOperator) -> None:
    document = secret(run(name="East_1"))
    assert document["metadata"]["name"] == "isthmus-remote-secret-east-1"
    assert list(document["stringData"]) == ["East_1"]


@pytest.mark.parametrize(
    ("trouble", "code"), [("kubeconfig", 65), ("unreachable", 69), ("timeout", 75), ("refused", 1)]
)
def test_the_exit_code_says_what_kind_of_trouble_it_was(there: FakeOperator, trouble: Trouble, code: int) -> None:
    there.refuses["ServiceAccount"] = Refusal(trouble, "no")
    done = run()
    assert (done.exit_code, done.stdout) == (code, "")


def test_a_dry_run_prints_what_would_be_applied_and_asks_nobody(there: FakeOperator) -> None:
    done = run("--dry-run", "--grant", "token-renewal")
    kinds = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert kinds == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert there.named is None


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("--kubeconfig", str(tmp_path / "none"))
    assert done.exit_code == 65
    assert str(tmp_path / "none") in done.stderr
