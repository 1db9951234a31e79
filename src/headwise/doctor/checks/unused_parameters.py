"""Look for modules whose weights no operation reads: in eval and train mode, on two batches, in the loss."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator

from torch import nn

from headwise.doctor.backward import training_pass
from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.made import assigned_at
from headwise.doctor.probe import Probe
from headwise.doctor.weights import are_equal, class_of, named, parameters_read, parents


@check(
    id="HW605",
    title="A layer was built and is never used",
    why="Its weights count and are saved, but change nothing: the model is not the one that was meant.",
    fix="Call the layer in forward, or remove it.",
    severity="warning",
    needs={"run"},
    last_resort=True,  # what another mistake leaves unread is its consequence
)
def unused_parameters(probe: Probe) -> Iterator[Found | Tried]:
    model = probe.user_model
    reads = [parameters_read(run.record) for run in (probe.given, probe.base)]
    passed = training_pass(probe)
    if passed.error is None:
        reads.append(passed.read)
    read = set[str]().union(*reads)
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    idle = [path for path in _idle(model, set(own) - read, own) if not _by_data(path, reads)]
    if not idle:
        yield Tried(f"found each of {len(own)} parameters read by the pass in eval or train mode")
        return
    graded = sorted(
        ((_severity(probe, path, read), path) for path in idle), key=lambda pair: pair[0] != "warning"
    )
    severity, path = graded[0]
    names = [name for name in own if name == path or name.startswith(f"{path}.")]
    numbers = sum(own[name].numel() for name in names)
    others = [other for _, other in graded[1:]]
    also = f"; so are {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}" if others else ""
    place = _line(probe, path)
    is_module = path not in own
    kind = type(probe.module_at(path)).__name__ if is_module else f"parameter {list(own[path].shape)}"
    yield Found(
        f"{path} ({kind}, {numbers:,} weights) is read by no operation in eval mode, in train mode or "
        f"in the loss{also}",
        at=place,
        module=path if is_module else parents(path),
        related=tuple(
            related([_line(probe, other) for other in others[:3]], "this one is not used either", place)
        ),
        severity=None if severity == "warning" else "note",
    )


def _idle(model: nn.Module, unread: set[str], own: dict[str, nn.Parameter]) -> list[str]:
    """The outermost modules, and single parameters, of which nothing is read."""
    found: list[str] = []
    for path, _ in named(model):
        if not path or any(path.startswith(f"{known}.") for known in found):
            continue
        names = [name for name in own if name.startswith(f"{path}.")]
        if names and all(name in unread for name in names):
            found.append(path)
    single = [name for name in unread if not any(name.startswith(f"{known}.") for known in found)]
    # a bias of a layer that is in use, or a part of a container's, is no layer of its own
    return found + sorted(
        name for name in single if class_of(type(model.get_submodule(parents(name)))) == "user"
    )


def _by_data(path: str, reads: list[set[str]]) -> bool:
    """Do the batches differ in which of its siblings they read? Experts are chosen by the data."""
    above = parents(path)
    beside = [
        frozenset(name.split(".")[above.count(".") + 1] for name in r if name.startswith(f"{above}."))
        for r in reads
    ]
    return bool(above) and len(set(beside)) > 1


def _severity(probe: Probe, path: str, read: set[str]) -> str:
    """A warning where the user's own class built it and mentions it in no method but those that build."""
    model = probe.user_model
    above = parents(path)
    owner, name = model.get_submodule(above), path.rpartition(".")[2]
    while isinstance(owner, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
        if isinstance(owner, nn.ModuleDict) or len([n for n in read if n.startswith(f"{above}.")]) == 0:
            pass
        else:
            return "warning"  # its siblings are used: a list of which some entries are left out
        above, name = parents(above), above.rpartition(".")[2]
        owner = model.get_submodule(above)
        if not above and not name:
            break
    if class_of(type(owner)) != "user" or name in mentioned(type(owner)) or _is_template(model, path):
        return "note"
    return "warning"


def _is_template(model: nn.Module, path: str) -> bool:
    """Was this layer only copied from, by nn.TransformerEncoder(self.layer, n)? Equal weights tell."""
    try:
        mine = dict(model.get_submodule(path).named_parameters())
    except AttributeError:
        return False
    kind = type(model.get_submodule(path))
    for other, module in named(model):
        if other != path and type(module) is kind and not other.startswith(f"{path}."):
            theirs = dict(module.named_parameters())
            if mine.keys() == theirs.keys() and all(are_equal(p, theirs[n]) for n, p in mine.items()):
                return any(p.dim() > 1 for p in mine.values())
    return False


@functools.lru_cache(maxsize=256)
def mentioned(kind: type) -> frozenset[str]:
    """Attributes of self that the methods of a class read, those that only its constructor calls left out."""
    methods: dict[str, set[str]] = {}
    for cls in reversed(kind.__mro__):
        if class_of(cls) != "user":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.args.args:
                methods[node.name] = _attributes(node, node.args.args[0].arg)
    building, todo = set[str](), ["__init__"]
    while todo:
        name = todo.pop()
        if name in methods and name not in building and name != "forward":
            building.add(name)
            todo.extend(methods[name])
    return frozenset(a for name, found in methods.items() if name not in building for a in found)


def _attributes(method: ast.FunctionDef, me: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me
    }


def _line(probe: Probe, path: str) -> Place | None:
    if path in dict(probe.user_model.named_parameters()):
        above = parents(path)
        return assigned_at(probe.module_at(above), path.rpartition(".")[2]) or constructed(probe, above)
    return constructed(probe, path)
