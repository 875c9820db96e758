"""Kubeconfigs in files are followed: what is deleted is withdrawn, what cannot be read keeps its last content."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.eventually import eventually
from watchers.registration_files import Found, follow_kubeconfig, follow_kubeconfigs, follow_service_account
from watchers.watching import SourceError


class Seen:
    """What was told last."""

    def __init__(self) -> None:
        self.all: list[Found] = []

    def __call__(self, found: Found) -> None:
        self.all.append(found)

    @property
    def configs(self) -> dict[str, bytes]:
        return {claim.cluster: claim.kubeconfig for claim in self.all[-1].claims} if self.all else {}

    @property
    def refused(self) -> list[str]:
        return [one.cause for one in self.all[-1].refused]


@asynccontextmanager
async def following(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_each_file_of_a_directory_registers_the_cluster_it_is_named_after(tmp_path: Path) -> None:
    for name in ("mesa.yaml", "fjord", ".draft", "old~"):
        (tmp_path / name).write_bytes(name.encode())
    seen = Seen()
    async with following(follow_kubeconfigs(tmp_path, seen)):
        await eventually(lambda: seen.configs == {"mesa": b"mesa.yaml", "fjord": b"fjord"})


async def test_files_that_come_change_and_go_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "mesa.yaml").write_bytes(b"t1")
    seen = Seen()
    async with following(follow_kubeconfigs(tmp_path, seen)):
        await eventually(lambda: seen.configs == {"mesa": b"t1"})
        (tmp_path / "mesa.yaml").write_bytes(b"t2")
        await eventually(lambda: seen.configs == {"mesa": b"t2"})
        (tmp_path / "fjord.yaml").write_bytes(b"f")
        (tmp_path / "mesa.yaml").unlink()
        await eventually(lambda: seen.configs == {"fjord": b"f"})


async def test_a_file_that_cannot_be_read_any_more_keeps_its_last_content(tmp_path: Path) -> None:
    (tmp_path / "mesa").write_bytes(b"t1")
    seen = Seen()
    async with following(follow_kubeconfigs(tmp_path, seen)):
        await eventually(lambda: seen.configs == {"mesa": b"t1"})
        (tmp_path / "mesa").write_bytes(b"x" * (1 << 20) + b"x")
        await eventually(lambda: seen.refused == ["cannot be read: is longer than 1,048,576 bytes"])
        assert seen.configs == {"mesa": b"t1"}


async def test_a_directory_that_vanishes_keeps_what_it_registered(tmp_path: Path) -> None:
    directory = tmp_path / "remotes"
    directory.mkdir()
    (directory / "mesa").write_bytes(b"t1")
    seen = Seen()
    async with following(follow_kubeconfigs(directory, seen)):
        await eventually(lambda: seen.configs == {"mesa": b"t1"})
        directory.rename(tmp_path / "away")
        await eventually(lambda: seen.refused == ["cannot be listed: No such file or directory"])
        assert seen.configs == {"mesa": b"t1"}
        shutil.move(tmp_path / "away", directory)
        await eventually(lambda: seen.refused == [])


async def test_one_file_is_followed_through_a_replacement(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(b"t1")
    seen = Seen()
    async with following(follow_kubeconfig("mesa", file, "--remote", seen)):
        await eventually(lambda: seen.configs == {"mesa": b"t1"})
        (tmp_path / "new").write_bytes(b"t2")
        (tmp_path / "new").replace(file)
        await eventually(lambda: seen.configs == {"mesa": b"t2"})
        file.unlink()
        await eventually(lambda: seen.refused == ["cannot be read: No such file or directory"])
        assert seen.configs == {"mesa": b"t2"}


async def test_what_is_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be listed: No such file or directory"):
        await follow_kubeconfigs(tmp_path / "none", Seen())
    with pytest.raises(SourceError, match="cannot be read: No such file or directory"):
        await follow_kubeconfig("mesa", tmp_path / "none", "--remote", Seen())


async def test_a_renewed_authority_of_the_service_account_is_told_and_a_renewed_token_is_not(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    def mount(version: str, ca: str, token: str) -> None:
        """As the kubelet does: a directory of its own, to which a link is turned."""
        (tmp_path / version).mkdir()
        (tmp_path / version / "ca.crt").write_text(ca)
        (tmp_path / version / "token").write_text(token)
        (tmp_path / "..new").symlink_to(version)
        (tmp_path / "..new").rename(tmp_path / "..data")

    mount("..1", "first", "t1")
    for name in ("ca.crt", "token"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    told: list[str] = []
    following = asyncio.create_task(
        follow_service_account(environment, tmp_path, lambda server: told.append(server.ca_data))
    )
    await eventually(lambda: told == ["first"])
    mount("..2", "first", "t2")
    mount("..3", "second", "t3")
    await eventually(lambda: told == ["first", "second"])
    (tmp_path / "..data").unlink()
    mount("..4", "third", "t4")
    await eventually(lambda: told == ["first", "second", "third"])
    following.cancel()
