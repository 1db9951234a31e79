"""Look for one object twice among the entries of a list of layers: depth without weights of its own.

Sharing by calling one layer again and again (ALBERT), and single tied matrices, are designs and stay silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.weights import class_of, entries_of, lists, matrices, named, parents


@check(
    id="HW601",
    title="Layers that should have weights of their own share one set",
    why="The model is as deep as it was meant to be but has the weights of one layer: it can learn far less.",
    fix="Build each layer anew, in a comprehension: ModuleList([Layer(...) for _ in range(n)]), not "
    "[layer] * n.",
    needs={"run"},
    explains={"same-initialisation", "norm-shared"},
    quick=True,
)
def weights_accidentally_shared(probe: Probe) -> Iterator[Found | Tried]:
    looked = 0
    for path, entries in lists(probe.user_model):
        looked += 1
        groups: dict[tuple[int, ...], list[str]] = {}
        for name, module in entries:
            weights = matrices(module)
            if weights:  # what has no matrix (activations, dropout, norms) may be shared
                groups.setdefault(tuple(id(p) for p in weights.values()), []).append(name)
        group = max(groups.values(), key=len, default=list[str]())
        if len(group) < 2:
            continue
        first = probe.module_at(group[0])
        same = all(probe.module_at(name) is first for name in group)
        count = sum(p.numel() for p in matrices(first).values())
        place = constructed(probe, path)
        is_whole = same or all(
            {id(p) for p in probe.module_at(name).parameters()} == {id(p) for p in first.parameters()}
            for name in group
        )
        yield Found(
            f"{', '.join(group[:4])}{' ...' if len(group) > 4 else ''} "
            + ("are one and the same module" if same else "hold the very same matrices")
            + f": {len(group)} layers with {count:,} weights in all, not {len(group) * count:,}",
            at=place,
            module=path,
            related=tuple(related([constructed(probe, group[0])], "the one layer is made here", place)),
            severity=None if is_whole else "warning",
        )
    for path, module in named(probe.user_model):
        twice = _twice(module)
        if twice is None or class_of(type(module)) != "user":
            continue
        first, second, shared = twice
        at = f"{path}.{second}" if path else second
        place = constructed(probe, at)
        yield Found(
            f"{first} and {second} of {path or 'the model'} are one and the same {type(shared).__name__}, "
            "and both are used for attention",
            at=place,
            module=path,
            severity="warning",
        )
    yield Tried(f"compared the entries of {looked} lists of layers, and the parts of each layer")


def _twice(module: nn.Module) -> tuple[str, str, nn.Module] | None:
    """Two names for one attention layer (a module with matrices in several parts) in one module."""
    if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
        return None
    seen: dict[int, str] = {}
    for name, child in entries_of(module):
        owners = {parents(weight) for weight in matrices(child)}
        is_attention = isinstance(child, nn.MultiheadAttention) or (len(owners) >= 3 and "" not in owners)
        if not is_attention:
            continue
        if id(child) in seen:
            return seen[id(child)], name, child
        seen[id(child)] = name
    return None
