"""Run the checks on a subject, put causes before consequences, and hand back a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from headwise.doctor.adapt import Adapted, adapt, flatten
from headwise.doctor.all_scores import with_all_scores
from headwise.doctor.available import check_device
from headwise.doctor.check import (
    SEVERITIES,
    Check,
    Finding,
    Found,
    NotApplicable,
    Related,
    Severity,
    Verdicted,
    checks,
)
from headwise.doctor.losses import copies_itself
from headwise.doctor.own_loss import OwnLoss, with_own_loss
from headwise.doctor.pad_id import check_pad_id
from headwise.doctor.probe import Probe
from headwise.doctor.report import VERSION, Report
from headwise.doctor.runner import is_large
from headwise.doctor.settings import chooser, without_suppressed
from headwise.doctor.shrink import shrink
from headwise.doctor.subject import KINDS, Kind, Layout, Subject
from headwise.doctor.untouched import untouched
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.doctor.made import Making

MOST_RELATED = 3


def examine(
    model: Any,
    inputs: Any,
    *,
    kind: Kind | None = None,
    pad_id: int | None = None,
    targets: Any = None,
    loss: Callable[..., Any] | None = None,
    optimizer: Any = None,
    call: Callable[..., Any] | None = None,
    generate: Callable[..., Any] | None = None,
    train_step: Callable[..., Any] | None = None,
    layout: Layout | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    device: str | None = None,
) -> Report:
    """Examine a model on one batch: which known mistakes are in it, where, shown by what measurement.

    model, inputs and the rest: see Subject. select and ignore take ids, groups (HW1) and names. The model
    comes back exactly as it was. Errors: ConfigError where there is nothing to examine or the model cannot be
    called.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}: got {kind!r}")
    selection = chooser(select, ignore)
    subject = Subject(
        model, inputs, call=call, kind=kind, pad_id=pad_id, targets=targets, loss=loss, optimizer=optimizer,
        generate=generate, train_step=train_step, layout=layout,
    )  # fmt: skip
    return examine_subject(subject, select=selection, device=device)


@dataclass(frozen=True)
class _Answer:
    check: Check
    found: Found


def examine_subject(
    subject: Subject,
    *,
    making: Making | None = None,
    select: Callable[[Check], bool] | None = None,
    device: str | None = None,
    target: str = "",
    assumed: dict[str, object] | None = None,
    notes: tuple[str, ...] = (),
    quick: bool = False,
) -> Report:
    """Examine a subject; `making` records what was made where, `quick` takes the fast checks only."""
    started = time.perf_counter()
    if device is not None:
        check_device(device)
    adapted = adapt(subject)
    answers: list[_Answer] = []
    verdicts: dict[str, Verdicted] = {}
    with untouched(adapted.model, subject.optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not is_large(
            adapted.model
        ):  # on small tensors threads only wait for one another; one sums in one order
            torch.set_num_threads(1)
        adapted = with_all_scores(with_own_loss(adapted, device), device)
        probe = _probe(adapted, making, device)
        if copies_itself(probe):
            adapted = replace(
                adapted,
                kind="decoder",
                kind_from="the targets are the inputs, and no position sees a later one",
            )
            probe = _probe(adapted, making, device)
        check_pad_id(probe)
        for check in checks():
            if select is not None and not select(check):
                continue
            if quick and not check.quick:
                continue
            verdicts[check.id] = _ask(check, probe, answers)
        if probe.failure is not None and not any(answer.check.group == "HW0" for answer in answers):
            raise _not_called(probe.failure) from probe.failure
        facts = _facts(adapted, probe, device)
    report = Report(
        version=VERSION,
        target=target or type(adapted.model).__name__,
        assumed={**facts, **(assumed or {})},
        findings=tuple(_ordered(answers)),
        verdicts=verdicts,
        notes=(*notes, *adapted.notes, *_asks(adapted)),
        seconds=time.perf_counter() - started,
    )
    return without_suppressed(report)


def _not_called(error: BaseException) -> ConfigError:
    """Why nothing can be said of a model: it cannot be called, or gives back nothing that can be read."""
    if isinstance(error, NotApplicable):
        return ConfigError(
            f"the model was called on its batch, and there is {error}; "
            "give `call`, a function (model, *inputs) that returns the scores as a tensor"
        )
    return ConfigError(
        f"the model could not be called on its batch: {type(error).__name__}: {_first_line(error)}; "
        "give `call`, a function (model, *inputs) that calls it as your training does"
    )


def _probe(adapted: Adapted, making: Making | None, device: str | None) -> Probe:
    """A probe of a part of a large batch; of the whole where the part does not run and the whole does."""
    part = shrink(adapted, is_large(adapted.model))
    probe = Probe(part, making, device)
    if part is not adapted and _stops(probe):
        whole = Probe(adapted, making, device)
        if not _stops(whole):
            return whole
    return probe


def _stops(probe: Probe) -> bool:
    return probe.failure is not None or (probe.stop is not None and probe.stop.phase == "loss")


def _ask(check: Check, probe: Probe, answers: list[_Answer]) -> Verdicted:
    """One check's verdict; a crash is told and hides nothing."""
    tried: list[str] = []
    try:
        lacking = probe.lacks(check.needs)
        if lacking is not None:
            return Verdicted("not-applicable", lacking)
        for each in check.ask(probe):
            if isinstance(each, Found):
                answers.append(_Answer(check, each))
                return Verdicted("found", each.evidence)
            tried.append(each.what)
        return Verdicted("clear", "; ".join(tried))
    except NotApplicable as reason:
        return Verdicted("not-applicable", str(reason))
    except Exception as error:
        return Verdicted("could-not-run", f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def _ordered(answers: list[_Answer]) -> list[Finding]:
    """Causes before consequences: what another finding explains goes beneath it."""
    by_name = {answer.check.name: answer for answer in answers}
    under: dict[str, str] = {}
    for name, answer in sorted(by_name.items(), key=lambda pair: pair[1].check.id):
        for consequence in answer.check.explains & by_name.keys():
            if consequence == name or _rank(answer) > _rank(by_name[consequence]):
                continue  # a note does not explain an error away
            if _root(under, name) != consequence:
                under.setdefault(consequence, name)
    causes = [name for name, answer in by_name.items() if not answer.check.last_resort and name not in under]
    for name, answer in by_name.items():
        if answer.check.last_resort and name not in under:
            graver = [cause for cause in causes if _rank(by_name[cause]) <= _rank(answer)]
            if graver:
                under[name] = graver[0]
    raised = _explained_by_milder(by_name, under)
    beneath: dict[str, list[str]] = {}
    for consequence in sorted(under, key=lambda name: by_name[name].check.id):
        beneath.setdefault(_root(under, consequence), []).append(consequence)
    kept = [raised.get(answer.check.name, answer) for answer in answers if answer.check.name not in under]
    kept.sort(key=lambda a: (_rank(a), -len(beneath.get(a.check.name, [])), a.check.id))
    return [_finding(answer, tuple(beneath.get(answer.check.name, []))) for answer in kept]


def _explained_by_milder(by_name: dict[str, _Answer], under: dict[str, str]) -> dict[str, _Answer]:
    """Errors that nothing as grave explains go beneath a warning whose card names them: it becomes one.

    The warning said 'very probably harmful'; that harm has been measured. By name, the answers raised.
    """
    raised: dict[str, _Answer] = {}
    for name, answer in sorted(by_name.items(), key=lambda pair: pair[1].check.id):
        if _severity(answer) != "warning" or name in under:
            continue
        for consequence in sorted(answer.check.explains & by_name.keys() - under.keys()):
            if _severity(by_name[consequence]) == "error" and consequence != name:
                under[consequence] = name
                raised[name] = _Answer(answer.check, replace(answer.found, severity="error"))
    return raised


def _root(under: dict[str, str], name: str) -> str:
    while name in under:
        name = under[name]
    return name


def _rank(answer: _Answer) -> int:
    return SEVERITIES.index(_severity(answer))


def _severity(answer: _Answer) -> Severity:
    return answer.found.severity or answer.check.severity


def _finding(answer: _Answer, explains: tuple[str, ...]) -> Finding:
    check, found = answer.check, answer.found
    place = found.at
    seen = {(place.file, place.line)} if place else set[tuple[str, int]]()
    related: list[Related] = []
    for other, role in found.related:
        if (other.file, other.line) not in seen and len(related) < MOST_RELATED:
            seen.add((other.file, other.line))
            related.append(Related(other.file, other.line, role))
    return Finding(
        id=check.id,
        name=check.name,
        severity=found.severity or check.severity,
        module=found.module,
        file=place.file if place else "",
        line=place.line if place else 0,
        related=tuple(related),
        evidence=found.evidence,
        why=found.why or check.why,
        fix=found.fix or check.fix,
        explains=explains,
        title=check.title,
        picture=found.picture,
    )


def _facts(adapted: Adapted, probe: Probe, device: str | None) -> dict[str, object]:
    subject = adapted.subject
    leaves = flatten(subject.inputs)
    facts: dict[str, object] = {
        "kind": adapted.kind,
        "kind_from": adapted.kind_from,
        "pad_id": subject.pad_id,
        "layout": adapted.layout,
        "inputs": [
            {"name": leaf.name, "role": leaf.role, "shape": list(tensor.shape)}
            for leaf, tensor in zip(adapted.leaves, leaves, strict=True)
        ],
    }
    if isinstance(subject.loss, OwnLoss):
        facts["loss"] = "the model's own"
    if probe.failure is None:
        facts["vocab"] = probe.vocab
        facts["dtype"] = str(probe.dtype).removeprefix("torch.")
        facts["tried_on"] = [list(leaf.shape) for leaf in probe.batch.leaves]
    if device:
        facts["device"] = device
    return facts


def _asks(adapted: Adapted) -> tuple[str, ...]:
    if adapted.kind is None and adapted.streams:
        targets, first = adapted.subject.targets, flatten(adapted.subject.inputs)[adapted.streams[0].leaf]
        given = ""
        if isinstance(targets, torch.Tensor):
            is_alike = targets.shape == first.shape
            given = (
                f" (the targets {list(targets.shape)} are not the next tokens)"
                if is_alike
                else f" (the targets are {list(targets.shape)}, the input {list(first.shape)})"
            )
        return (
            f"nothing says whether this is a decoder or an encoder{given}: give --kind (or kind=...); "
            "the checks that need it, causal-leak among them, were not made",
        )
    return ()
