"""Compare the weights of layers that follow one another: drawn at random, no two of them should be equal."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.weights import are_equal, class_of, drawn, lists, matrices, parents, written_at


@check(
    id="HW602",
    title="Layers start as copies of one another",
    why="Equal layers get nearly equal gradients at first, so depth begins as repetition and training "
    "as a detour.",
    fix="Draw each layer's weights anew: build the layers in a comprehension, or initialise them after "
    "copying.",
    severity="warning",
    needs={"run"},
)
def same_initialisation(probe: Probe) -> Iterator[Found | Tried]:
    compared = 0
    for path, entries in lists(probe.user_model):
        compared += len(entries)
        equal = _equal(entries)
        if len(equal) < 2 or not _in_sequence(probe, equal):
            continue
        owner = probe.module_at(parents(path))
        is_users = class_of(type(owner)) == "user"
        place, made = _line(probe, path, equal[1])
        yield Found(
            f"{', '.join(equal[:4])}{' ...' if len(equal) > 4 else ''} hold different matrices with "
            "exactly the same "
            f"random numbers ({len(equal)} of {len(entries)} layers)",
            at=place,
            module=path,
            related=tuple(related([made], "the layers are held here", place)),
            severity=None if is_users else "note",
            why=""
            if is_users
            else "torch copies the layer it is given; training pulls the copies apart slowly.",
        )
    yield Tried(f"compared the weights of {compared} entries of lists of layers")


def _equal(entries: list[tuple[str, nn.Module]]) -> list[str]:
    """Entries whose matrices are all equal to those of the first such entry, though they are not the same."""
    for place, (name, module) in enumerate(entries):
        mine = matrices(module)
        alike = [name]
        for other, second in entries[place + 1 :]:
            theirs = matrices(second)
            both = mine.keys() & theirs.keys()
            # T5's first block holds a table of its own beside what the others have too
            is_other = type(second) is not type(module) or both not in (mine.keys(), theirs.keys())
            if second is module or is_other or not both:
                continue
            if all(theirs[key] is not mine[key] and are_equal(mine[key], theirs[key]) for key in both):
                alike.append(other)
        if len(alike) > 1 and not all(drawn(w).is_constant for w in mine.values()):
            return alike
    return []


def _in_sequence(probe: Probe, names: list[str]) -> bool:
    """Does the second layer read what the first gives? Heads and experts side by side are not depth."""
    record = probe.base.record
    inside = [
        [
            op
            for op in record.ops
            if any(path == name or path.startswith(f"{name}.") for path, _ in op.modules)
        ]
        for name in names[:2]
    ]
    if not inside[0] or not inside[1]:
        return False
    later = record.descendants(v for op in inside[0] for v in op.outputs)
    return any(v in later and v.op not in inside[1] for op in inside[1] for v in op.inputs)


def _line(probe: Probe, path: str, copy: str) -> tuple[Place | None, Place | None]:
    """Where a layer was copied, or its weights were last written; else where its list was made."""
    listed = constructed(probe, path)
    module = probe.module_at(copy)
    if probe.making is not None:
        written = written_at(probe, next(iter(matrices(module).values())), ops=("copy_", "clone"))
        copied = probe.making.copied(module)
        if written is not None and written[1] == "copy_":
            return written[0], listed
        if copied is not None:
            return copied, listed
        if written is not None:
            return written[0], listed
    return listed, constructed(probe, copy)
