"""The replicas of a control plane as pods of a cluster, asked through its API server by a kubeconfig of the person at
the terminal.

In: kubeconfig, context, namespace. Out: Answers, as from admin ports.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from aggregator.cli.control_plane import Answer, UnreadableInput
from watchers.kubernetes.operator_access import Refusal, operator
from watchers.kubernetes.pod_pages import PodPage, pod_pages


class PodReplicas:
    """All pods of the control plane in a namespace. No request takes longer than `timeout` seconds."""

    def __init__(self, kubeconfig: Path | None, context: str | None, namespace: str, *, timeout: float) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._namespace = namespace
        self._timeout = timeout

    def ask(self, path: str) -> list[Answer]:
        """See Replicas."""
        try:
            pages = asyncio.run(self._pages(path))
        except Refusal as refusal:
            if refusal.trouble == "kubeconfig":
                raise UnreadableInput(str(refusal)) from None
            return [Answer(self._context or "the current context", problem=str(refusal))]
        return [Answer(page.pod, page.status, page.body, page.problem) for page in pages]

    async def _pages(self, path: str) -> list[PodPage]:
        async with operator(self._kubeconfig, self._context, seconds=self._timeout) as there:
            return await pod_pages(there, self._namespace, path)
