"""Exit codes of the commands that ask a control plane: the same in every output format.

`isthmus run`, `bootstrap` and `demo`, which ask none, end with 0, 1, or 2 for wrong usage. Above 63 they are those of
sysexits.h.
"""

from __future__ import annotations

FINDINGS = 2
"""What was asked about needs attention."""
USAGE = 64
"""An option, or a name there is not."""
UNREADABLE = 65
"""A kubeconfig that cannot be used."""
UNREACHABLE = 69
"""A control plane that was asked did not answer."""
