"""Rules of `aggregator.app.selections`: what the graph says of namespaces reaches those who read clusters."""

from __future__ import annotations

import asyncio

from aggregator.app.selections import follow
from aggregator.cache.table import Table
from aggregator.mesh.selection import Selected
from tests.kit.clock import virtual_time
from watchers.selection import Selections


@virtual_time
async def test_every_selection_there_is_and_will_be_is_told() -> None:
    table: Table[tuple[str], Selected] = Table("selections")
    table.apply([(("west",), Selected(("shop",)))])
    selections = Selections()
    west, east = selections.of("west"), selections.of("east")
    following = asyncio.create_task(follow(table, selections))
    await asyncio.sleep(0.1)
    assert west.namespaces == frozenset({"shop"})
    table.apply([(("west",), Selected(None)), (("east",), Selected(()))])
    await asyncio.sleep(0.1)
    assert [one.namespaces for one in (west, east)] == [None, frozenset()]
    following.cancel()


@virtual_time
async def test_who_begins_to_read_a_cluster_that_was_forgotten_waits_to_be_told() -> None:
    table: Table[tuple[str], Selected] = Table("selections")
    selections = Selections()
    following = asyncio.create_task(follow(table, selections))
    table.apply([(("west",), Selected(("shop",)))])
    await asyncio.sleep(0.1)
    table.apply([(("west",), None)])
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    asyncio.get_running_loop().call_later(1.0, table.apply, [(("west",), Selected(("bank",)))])
    west = selections.of("west")
    await west.settled()
    assert asyncio.get_running_loop().time() - began == 1.0
    assert west.namespaces == frozenset({"bank"})
    following.cancel()
