"""Which Ingresses are ours: the class an Ingress names, or the default class, and who serves it.

The field spec.ingressClassName goes before the older annotation kubernetes.io/ingress.class, which is read as the name
of a class too. The class `isthmus` exists even where nobody has made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aggregator.findings import Finding
from aggregator.graph import At, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home
from watchers.facts.keys import ObjectKey, label
from watchers.facts.networking import CLASS_ANNOTATION, Ingress, IngressClass

BUILT_IN_CLASS: Final = "isthmus"
CONTROLLER: Final = "isthmus.dev/ingress-controller"
ISTIO_CONTROLLER: Final = "istio.io/ingress-controller"
_DEFAULTS: Final = "default"

Judge = Callable[[At, Ingress], Withheld | None]
"""Says, inside a derivation, why an Ingress is not served; None: it is."""


def declare(graph: Graph, home: Home, classes: Source[ObjectKey, IngressClass]) -> Judge:
    """Declare the classes of home."""
    served = (CONTROLLER, ISTIO_CONTROLLER) if home.istio_classes else (CONTROLLER,)

    def is_default(key: ObjectKey, one: IngressClass) -> tuple[str, ...]:
        return (_DEFAULTS,) if one.is_default and key[0] == home.cluster else ()

    defaults = graph.index("default ingress classes", classes, is_default)

    def parameters(at: At, key: ObjectKey, one: IngressClass) -> Outcome[bool]:
        """Whether a class has none; notes it where it has."""
        if key[0] == home.cluster and one.controller in served and one.parameters:
            at.note(key, Finding(key, "ClassParametersIgnored", "spec.parameters", "it is set"))
        return not one.parameters

    graph.derive("parameters of ingress classes", classes, parameters)

    def default_class(at: At) -> str:
        """Of several the newest, then by name, as the API server chooses for new Ingresses."""
        members = sorted(at.group(defaults, _DEFAULTS).items(), key=lambda item: item[0])
        return max(members, key=lambda item: item[1].created)[0][3] if members else ""

    def refusal(at: At, ingress: Ingress) -> Withheld | None:
        name = ingress.class_name or label(ingress.annotations, CLASS_ANNOTATION) or default_class(at)
        declared = at.get(classes, (home.cluster, "IngressClass", "", name)) if name else None
        ours = declared.controller in served if declared is not None else name == BUILT_IN_CLASS
        return None if ours else Withheld("IngressOfOtherClass", name)

    return refusal
