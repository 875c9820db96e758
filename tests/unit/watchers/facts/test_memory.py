"""What a pod costs at rest: sharing is what keeps clusters small, and is easily lost."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

from tests.kit import manifests
from watchers.facts.kinds import kind_of

COUNT = 4_000
ROOT = Path(__file__).parents[4]


def page() -> bytes:
    """Pods as of forty Deployments on fifty nodes."""
    pods = [
        manifests.pod(
            f"shop{number % 8}/cart{number % 40}-5d8f7c9b6-{number:05x}",
            f"10.1.{number // 250}.{number % 250}",
            labels={"app": f"cart{number % 40}", "version": "v1", "team": "carts", "app.kubernetes.io/name": "cart"},
            account=f"cart{number % 40}",
            node=f"node-{number % 50}",
            ports={"http": 8080, "metrics": 9090},
            deployment=f"cart{number % 40}",
            created=f"2026-01-01T00:{number % 40:02}:{number % 7:02}Z",
        )
        for number in range(COUNT)
    ]
    return json.dumps(manifests.object_list(*pods)).encode()


def bytes_of_a_pod() -> float:
    """What one pod of a page takes once the page is gone."""
    data = page()
    pod = kind_of("v1", "Pod")
    assert pod is not None
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        facts = dict(pod.decode_page(data, "west", "istio-system").facts)
        gc.collect()
        taken = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()
    assert len(facts) == COUNT
    return taken


def test_a_pod_takes_half_a_kilobyte_at_rest() -> None:
    # In a process of its own: the table of interned strings is the whole process's, and may grow just here.
    program = f"from {__name__} import bytes_of_a_pod; print(bytes_of_a_pod())"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert float(ran.stdout) < 500


def test_the_collector_does_not_track_pods() -> None:
    pod = kind_of("v1", "Pod")
    assert pod is not None
    facts = pod.decode_page(page(), "west", "istio-system").facts
    gc.collect()
    assert not any(gc.is_tracked(fact) for _, fact in facts)
    assert not any(gc.is_tracked(key) for key, _ in facts)
