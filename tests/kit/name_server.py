"""A real DNS server on loopback, over UDP: says what a test sets, counts what it is asked.

Names it was told nothing of do not exist. It can also refuse, say nothing, or fail for one type of record.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from watchers.lookups.dns import DnsResolver


class NameServer(asyncio.DatagramProtocol):
    """Use it as an async context manager; `resolver` asks it alone."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
        """(name, type) -> TTL and values. A CNAME is told with the records of its target."""
        self.failing: dict[str, int] = {}
        """Type of record -> response code that it is answered with."""
        self.silent = False
        self.asked: list[tuple[str, str]] = []
        self._transport: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            self._transport.close()
            await asyncio.sleep(0)

    @property
    def resolver(self) -> DnsResolver:
        """A resolver of this server."""
        assert self._transport is not None, "enter the context first"
        _, port = self._transport.get_extra_info("sockname")
        return DnsResolver(("127.0.0.1",), port)

    def set(self, name: str, *addresses: str, ttl: int = 5) -> None:
        """These are the addresses of a name now. They are told in any order, as name servers do."""
        for kind, colon in (("A", False), ("AAAA", True)):
            self.records[name, kind] = ttl, tuple(address for address in addresses if (":" in address) == colon)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answers one question."""
        question = dns.message.from_wire(data)
        name = question.question[0].name.to_text(omit_final_dot=True)
        kind = dns.rdatatype.to_text(question.question[0].rdtype)
        self.asked.append((name, kind))
        if self.silent:
            return
        answer = cast("dns.message.QueryMessage", dns.message.make_response(question))
        answer.flags |= dns.flags.RA
        if kind in self.failing:
            answer.set_rcode(dns.rcode.Rcode(self.failing[kind]))
        else:
            self._fill(answer, name, kind)
        assert self._transport is not None
        self._transport.sendto(answer.to_wire(), addr)

    def _fill(self, answer: dns.message.Message, name: str, kind: str) -> None:
        while (name, "CNAME") in self.records:
            ttl, (target,) = self.records[name, "CNAME"]
            answer.answer.append(dns.rrset.from_text(f"{name}.", ttl, "IN", "CNAME", f"{target}."))
            name = target
        if not any((name, known) in self.records for known in ("A", "AAAA")):
            answer.set_rcode(dns.rcode.NXDOMAIN)
            return
        ttl, values = self.records.get((name, kind), (0, ()))
        if values:
            records = dns.rrset.from_text(f"{name}.", ttl, "IN", kind, *values)
            answer.answer.append(records)
