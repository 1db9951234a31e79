"""Find the subject in what a file defines, with the least help from its author, and say what was assumed."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.given import EXAMPLE, are_tensors, listed, size_of, subject_from
from headwise.doctor.guard import told
from headwise.doctor.outline import Outline
from headwise.doctor.subject import Subject
from headwise.errors import DataError

FACTORIES = ("build", "build_model", "make_model", "get_model", "create_model")
_MODELS = ("model", "net", "transformer")
_CONFIGS = ("config", "cfg", "conf", "args", "hparams", "hp", "c")


@dataclass(frozen=True)
class Discovered:
    """A subject, whose inputs are None where the file gives none, and how it was found."""

    subject: Subject
    assumed: dict[str, object]
    notes: tuple[str, ...] = ()


def discover(module: types.ModuleType, name: str | None, shown: str) -> Discovered:
    """The subject that a module defines: by `name` where one is given, else in the order of the handbook.

    subject(), a factory without arguments, a model, the outermost class that can be built. shown: the file as
    the user named it.
    Errors: DataError that asks for exactly what is missing; what the user's own code raises passes.
    """
    known = vars(module)
    if name is not None:
        return _named(module, name, shown)
    if "subject" in known:
        made = _made(known["subject"], "subject", module, shown)
        return Discovered(subject_from(made, "subject()", shown), {})
    outline = Outline(module)
    for found in (_factory, _instance, _class):
        discovered = found(module, outline, shown)
        if discovered is not None:
            return discovered
    raise _nothing(module, outline, shown)


def _named(module: types.ModuleType, name: str, shown: str) -> Discovered:
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            public = [known for known in dir(value) if not known.startswith("_")]
            close = difflib.get_close_matches(part, public, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {listed(public) or 'nothing public'}"
            raise DataError(f"{shown} has no {name}; {hint}")
        value = getattr(value, part)
    subject = subject_from(_made(value, name, module, shown), name, shown)
    return Discovered(_with_neighbours(subject, module) if isinstance(value, nn.Module) else subject, {})


def _factory(module: types.ModuleType, outline: Outline, shown: str) -> Discovered | None:
    known = vars(module)
    named = [name for name in FACTORIES if callable(known.get(name))]
    others = outline.factories()
    for name in [*named, *(others if len(others) == 1 else ())]:
        given = _arguments(known[name], module)
        if given is not None:
            subject = subject_from(known[name](**given[0]), f"{name}()", shown)
            return Discovered(subject, {"model": f"{name}({given[1]})"})
    return None


def _instance(module: types.ModuleType, outline: Outline, shown: str) -> Discovered | None:
    held = {name: value for name, value in vars(module).items() if isinstance(value, nn.Module)}
    models = {name: value for name, value in held.items() if any(True for _ in value.parameters())}
    if not models:
        return None
    name = next((name for name in _MODELS if name in models), None) or max(
        models, key=lambda name: size_of(models[name])
    )
    subject = _with_neighbours(Subject(models[name], None), module)
    others = [other for other in models if models[other] is not models[name]]
    notes = (f"of the models {listed([name, *others])} in {shown}, {name} was examined",) if others else ()
    return Discovered(subject, {"model": name}, notes)


def _class(module: types.ModuleType, outline: Outline, shown: str) -> Discovered | None:
    """The largest of the classes that no other class in the file uses, built with its defaults."""
    built: dict[str, tuple[nn.Module, str]] = {}
    for name in outline.outermost():
        given = _arguments(vars(module)[name], module)
        if given is None:
            continue
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]  # each as if it were the only one
        try:
            model = vars(module)[name](**given[0])
        except Exception as error:
            raise DataError(
                f"{shown}: building {name}({given[1]}) failed: {told(error)}; to build it in another way, "
                f"add a function: {EXAMPLE}"
            ) from error
        if size_of(model):
            built[name] = model, given[1]
    if not built:
        return None
    name = max(built, key=lambda name: size_of(built[name][0]))
    others = [other for other in outline.outermost() if other != name]
    notes = (f"{shown} also defines {listed(others)}, which no class uses; not examined",) if others else ()
    return Discovered(Subject(built[name][0], None), {"model": f"{name}({built[name][1]})"}, notes)


def _nothing(module: types.ModuleType, outline: Outline, shown: str) -> DataError:
    classes = outline.outermost()
    needy = [name for name in FACTORIES if callable(vars(module).get(name))]
    if needy:
        what = f"found {listed([_call(name, module) for name in needy])}, which needs arguments"
    elif classes:
        calls = listed([_call(name, module) for name in classes])
        these = f"class {calls}, which cannot" if len(classes) == 1 else f"classes {calls}, but none can"
        what = f"found the {these} be built without arguments"
    else:
        what = "found no nn.Module, no function that returns one and no subject()"
    return DataError(f"{shown}: {what}; add a function: {EXAMPLE}")


def _call(name: str, module: types.ModuleType) -> str:
    return f"{name}({', '.join(_required(vars(module)[name]) or ())})"


def _made(value: Any, name: str, module: types.ModuleType, shown: str) -> object:
    """What a named thing gives: itself, or what calling it gives."""
    if isinstance(value, nn.Module) or not callable(value):
        return value
    given = _arguments(value, module)
    if given is None:
        needed = ", ".join(_required(value) or ("nobody can tell which",))
        raise DataError(
            f"{shown}: {name} needs arguments ({needed}); name a function without, such as: {EXAMPLE}"
        )
    return value(**given[0])


def _with_neighbours(subject: Subject, module: types.ModuleType) -> Subject:
    """What stands beside a module-level model under the names of a subject's fields, where the type fits."""
    known = vars(module)
    parameters = {id(parameter) for parameter in subject.model.parameters()}
    optimizers = [
        value
        for value in known.values()
        if isinstance(value, torch.optim.Optimizer)
        and any(id(p) in parameters for group in value.param_groups for p in group["params"])
    ]
    inputs, targets, pad_id = known.get("inputs"), known.get("targets"), known.get("pad_id")
    loss = next((known[n] for n in ("loss", "loss_fn", "criterion") if callable(known.get(n))), None)
    if inputs is None or not are_tensors(inputs):
        inputs = targets = None  # targets say nothing of inputs that were made up
    return replace(
        subject,
        inputs=inputs,
        targets=targets if isinstance(targets, Tensor) else None,
        loss=loss if isinstance(targets, Tensor) else None,
        pad_id=pad_id if type(pad_id) is int else None,
        optimizer=optimizers[0] if len({id(optimizer) for optimizer in optimizers}) == 1 else None,
    )


def _arguments(
    function: Callable[..., Any], module: types.ModuleType
) -> tuple[dict[str, object], str] | None:
    """Keyword arguments that a call needs, and how they read: none, or one configuration of defaults."""
    required = _required(function)
    if required is None:
        return None
    if not required:
        return {}, ""
    name, annotation = next(iter(required.items()))
    if len(required) > 1:
        return None
    known = vars(module)
    configs = [value for value in known.values() if _is_config(value, module)]
    if isinstance(annotation, type) and _is_config(annotation, module):
        configs = [annotation]
    elif name not in _CONFIGS:
        return None
    at_hand = [key for key in _CONFIGS if configs and isinstance(known.get(key), tuple(configs))]
    if at_hand:
        return {name: known[at_hand[0]]}, at_hand[0]
    if len(configs) == 1 and not (_required(configs[0]) or None):
        return {name: configs[0]()}, f"{configs[0].__name__}()"
    return None


def _is_config(value: object, module: types.ModuleType) -> bool:
    if not isinstance(value, type) or value.__module__ != module.__name__ or issubclass(value, nn.Module):
        return False
    kind = cast("type[Any]", value)
    return is_dataclass(kind) or kind.__name__.lower().endswith(("config", "args", "hparams", "params"))


def _required(function: Callable[..., Any]) -> dict[str, object] | None:
    """Parameters without a default, with their annotations; None where nobody can tell."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # annotations that name nothing; a builtin
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return None
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in skipped
    }
