"""Run the user's generate on a copy and look on: what the model was fed, what it answered, what was chosen.

A step fed with the new token alone must answer as the whole text does without a cache. Logits are compared,
not ids: in a fresh model the two best words are near ties.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import flatten, logits_of, twin
from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.probe import Probe, Run
from headwise.doctor.runner import largest, ordinary
from headwise.doctor.trace import DROPOUTS, Frame, Op, Recording, recording
from headwise.doctor.untouched import default_dtype, seed_everything

CHOICES = {"argmax", "multinomial", "topk", "max", "sort"}
NEW_TOKENS = 3
FLOOR = 1e-2  # scores that differ by less than a rounding of this size were computed from larger numbers


@dataclass(eq=False)
class Step:
    """One call of the model: its integer inputs, its last row of scores [B, V], its operations."""

    given: list[Tensor]
    scores: Tensor
    first: int
    last: int


@dataclass(eq=False)
class Decoding:
    """One run of generate: prompt and result [B, T], the calls of the model, the recording of all of it.

    rows: those of the base batch it was run on, None for all.
    """

    prompt: Tensor
    ids: Tensor
    steps: list[Step]
    record: Recording
    width: int
    rows: list[int] | None = None

    @property
    def choices(self) -> list[tuple[Op, Tensor]]:
        """Where tokens were chosen, with the scores [B, V] they were chosen by."""
        found: list[tuple[Op, Tensor]] = []
        rows = self.prompt.shape[0]
        for op in self.record.ops:
            if (
                op.name in CHOICES
                and op.inputs
                and op.inputs[0].tensor.is_floating_point()
                and not op.modules
            ):
                scores = op.inputs[0].tensor
                if (
                    scores.dim() >= 2
                    and scores.shape[-1] == self.width
                    and scores.numel() == rows * self.width
                ):
                    found.append((op, scores.reshape(rows, -1)))
        return found


@dataclass(eq=False)
class Fed:
    """A step fed with less than the text so far: `count` tokens are known to the model when it answers."""

    step: Step
    count: int
    is_expected: bool


def decoder_copy(probe: Probe) -> nn.Module:
    """The copy that decodes: as the probe's, but what was initialised to zero holds small numbers.

    A zero output projection hides everything that goes wrong before it.
    """

    def make() -> nn.Module:
        if probe.is_large:
            probe.release()
        model, _ = twin(probe.user_model, None)

        def cast(tensor: Tensor) -> Tensor:  # complex tables stay as they are
            return tensor.to(probe.dtype) if tensor.is_floating_point() else tensor

        model._apply(cast)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        if probe.device:
            model.to(probe.device)
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for p in model.parameters():
                if p.is_floating_point() and p.numel() and not bool(p.any()):
                    p.copy_(0.02 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
        return model.eval()

    return probe.memo("decoding.copy", make)


def whole(probe: Probe, batch: Batch) -> Run:
    """The uncached pass on a batch, by the copy that decodes."""
    model = decoder_copy(probe).eval()
    leaves = probe._leaves(batch)  # pyright: ignore[reportPrivateUsage]
    seed_everything()
    with torch.no_grad(), default_dtype(probe.dtype), recording(model, leaves) as log:
        output = probe.adapted.call(model, leaves)
        logits = probe.settled(log, output, batch)
    return Run(batch, log, output, logits)


def text_of(probe: Probe) -> Tensor:
    """[B, T] tokens without padding, from the base batch."""
    assert probe.main is not None
    return probe.batch.read(probe.main)


def prompt_length(probe: Probe) -> int:
    """A prompt's length that leaves room for the new tokens within the length that the model was given."""
    count = min(6, probe.length - NEW_TOKENS)
    if count < 2:
        raise NotApplicable("the batch is too short for a prompt and new tokens")
    return count


def decode(probe: Probe, prompt: Tensor, new: int = NEW_TOKENS) -> Decoding:
    """Run the user's generate on prompts [B, T] and record it."""
    generate = probe.subject.generate
    if generate is None or probe.main is None or not probe.main.is_ids:
        raise NotApplicable("no generate function for token ids was given")
    template = decoder_copy(probe)
    model = template if probe.is_large else copy.deepcopy(template)  # a cache may live in the module
    model.eval()
    handed = prompt.T.contiguous() if probe.adapted.batch_axis else prompt.clone()
    if probe.device:
        handed = handed.to(probe.device)
    steps: list[Step] = []
    seed_everything()
    refuse_chance(probe.base.record)
    axis = probe.adapted.batch_axis
    with (
        torch.no_grad(),
        default_dtype(probe.dtype),
        recording(model, [handed]) as log,
        _watched(model, log, steps, axis, prompt, probe.base.logits.shape[-1]),
    ):
        result = generate(model, handed, new)
    ids = next(
        (leaf for leaf in flatten(getattr(result, "sequences", result)) if not leaf.is_floating_point()), None
    )
    if ids is None or ids.dim() != 2:
        raise NotApplicable("generate returned no ids [B, T]")
    ids = (ids.T if probe.adapted.batch_axis else ids).to(prompt.device)
    if ids.shape[0] != prompt.shape[0]:
        raise NotApplicable("generate returned another number of rows than it was given")
    if ids.shape[1] <= new or not torch.equal(ids[:, : prompt.shape[1]], prompt):
        ids = torch.cat([prompt, ids], 1)  # only what is new was returned
    width = steps[0].scores.shape[-1] if steps else 0
    return Decoding(prompt, ids, steps, log, width)


@contextmanager
def _watched(
    model: nn.Module, log: Recording, steps: list[Step], batch_axis: int, prompt: Tensor, width: int
) -> Generator[None]:
    """See every call of the model, by hooks: a wrapper would hide the lines of generate.

    Where it is never called, its own public methods that are given ids and return scores stand for it.
    """
    started: list[int] = []
    by_method: list[Step] = []

    def enter(_module: nn.Module, _args: Any, _named: Any) -> None:
        started.append(len(log.ops))

    def leave(_module: nn.Module, args: Any, named: Any, output: Any, to: list[Step] = steps) -> None:
        first = started.pop()
        given = [leaf for leaf in flatten((args, named)) if leaf.dim() == 2]
        whole_numbers = [leaf for leaf in given if not leaf.is_floating_point() and leaf.dtype != torch.bool]
        held = [
            (leaf.T if batch_axis else leaf).detach().to(prompt.device, copy=True) for leaf in whole_numbers
        ]
        scores = logits_of(output)
        if scores is not None and held and scores.dim() in {2, 3}:
            last = scores if scores.dim() == 2 else scores[-1] if batch_axis else scores[:, -1]
            if last.shape[0] == prompt.shape[0]:
                to.append(Step(held, last.detach().clone(), first, len(log.ops)))

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            enter(model, args, named)
            try:
                output = method(*args, **named)
            except BaseException:
                started.pop()
                raise
            leave(model, args, named, output, by_method if len(started) == 1 else [])
            return output

        return call

    names = [name for name in _methods(model) if name not in vars(model)]
    for name in names:
        vars(model)[name] = watched(getattr(model, name))
    handles = [
        model.register_forward_pre_hook(enter, with_kwargs=True),
        model.register_forward_hook(leave, with_kwargs=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for name in names:
            del vars(model)[name]
    if not steps and all(step.scores.shape[-1] == width for step in by_method):
        steps.extend(by_method)


def _methods(model: nn.Module) -> list[str]:
    """The public methods that the user's own class gives a model, but for forward."""
    own = [kind for kind in type(model).__mro__ if not kind.__module__.startswith("torch.")]
    held = {name: value for kind in own if issubclass(kind, nn.Module) for name, value in vars(kind).items()}
    return [
        name
        for name, value in held.items()
        if isinstance(value, FunctionType) and not name.startswith("_") and name != "forward"
    ]


def batch_decoding(probe: Probe) -> Decoding:
    """generate on prompts of one length, all rows: run once for all checks."""
    return probe.memo("decoding.batch", lambda: decode(probe, text_of(probe)[:, : prompt_length(probe)]))


def fed(decoding: Decoding) -> list[Fed]:
    """The steps that rely on a cache, with how many tokens the model has seen by then.

    Empty where every step is given the whole text so far.
    """
    found: list[Fed] = []
    seen = 0
    for step in decoding.steps:
        count = from_the_start(decoding, step)
        if count > seen:
            seen = count
            continue
        new = next((g for g in step.given if _is(decoding.ids, g, seen)), None)
        if new is None:
            new = next((g for g in step.given if g.shape[1] == 1), None)
            if new is None or seen >= decoding.ids.shape[1]:
                break
            seen += 1
            found.append(Fed(step, seen, False))
            continue
        seen += new.shape[1]
        found.append(Fed(step, seen, True))
    return found


def from_the_start(decoding: Decoding, step: Step) -> int:
    """How many tokens of the text a step is given from its beginning on; 0 where it is given no beginning."""
    return max((given.shape[1] for given in step.given if _is(decoding.ids, given, 0)), default=0)


def _is(ids: Tensor, part: Tensor, start: int) -> bool:
    end = start + part.shape[1]
    return part.shape[0] == ids.shape[0] and 0 < end <= ids.shape[1] and torch.equal(ids[:, start:end], part)


def wordy_decoding(probe: Probe) -> Decoding:
    """generate on the rows in which it chose no padding: masks made from ids would hide what it chose."""
    whole_batch = batch_decoding(probe)
    if probe.pad_id is None or not bool((whole_batch.ids == probe.pad_id).any()):
        return whole_batch

    def make() -> Decoding:
        rows = (whole_batch.ids != probe.pad_id).all(1).nonzero().flatten()
        if not len(rows):
            raise NotApplicable("generate chose the padding token in every row")
        found = decode(probe, whole_batch.prompt[rows])
        found.rows = [int(row) for row in rows]
        return found

    return probe.memo("decoding.wordy", make)


def up_to(probe: Probe, decoding: Decoding, count: int) -> Run:
    """The uncached pass on the first tokens of what was decoded."""
    assert probe.main is not None
    if count > probe.length:
        raise NotApplicable("generate went beyond the length of the batch")

    def make() -> Run:
        assert probe.main is not None
        batch = probe.batch if decoding.rows is None else probe.batch.take_rows(decoding.rows)
        short = batch.cut({stream.name: count for stream in probe.adapted.streams})
        return whole(probe, short.write(probe.main, decoding.ids[:, :count].to(short.read(probe.main))))

    return probe.memo(f"decoding.up_to.{count}", make)


def last_scores(probe: Probe, run: Run) -> Tensor:
    """[B, V] the scores at the last position."""
    logits = probe.rows_first(run.logits)
    return logits[:, -1] if logits.dim() == 3 else logits


def apart(probe: Probe, a: Tensor, b: Tensor, floor: float = FLOOR) -> float:
    """How far apart two score tensors are, as a share of their spread; 0 below what rounding explains.

    Where all are alike (one number, or a head that gives zeros yet) there is no spread: of their size.
    """
    if a.shape != b.shape:
        return 0.0
    both = ordinary(a) & ordinary(b)
    if not bool(both.any()):
        return 0.0
    most, size = float((a - b).abs()[both].max()), max(largest(a[both]), largest(b[both]))
    spread = float(b[both].std()) if int(both.sum()) > 1 else 0.0
    spread = spread if spread > 1e-6 * size else size
    least = min(0.3, max(1e-6, 1000 * probe.eps))
    return most / spread if most > least * max(spread, floor) else 0.0


def calling_line(probe: Probe, op: Op) -> Place | None:
    """The line outside of the model that led to an operation inside of it."""
    own = [frame for frame in op.frames if not frame.library]
    code = getattr(type(probe.user_model).forward, "__code__", None)
    inside = [i for i, frame in enumerate(own) if code is not None and _in(frame, code)]
    outside = own[inside[-1] + 1 :] if inside else own[-1:]
    return outside[0].place if outside else (own[-1].place if own else None)


def _in(frame: Frame, code: Any) -> bool:
    return frame.place.file == code.co_filename and frame.place.function == code.co_qualname


def refuse_chance(record: Recording) -> None:
    """Raise NotApplicable where a pass in eval mode draws random numbers: two rows then differ by chance."""
    if any(op.name in DROPOUTS for op in record.ops if op.modules):
        raise NotApplicable("the pass draws random numbers in eval mode (see dropout-in-eval)")


def row_of(tensor: Tensor, alone: Tensor, row: int, rows: int) -> Tensor | None:
    """The part of a batch's tensor that belongs to a row, shaped as it is when the row is alone."""
    if tensor.dim() != alone.dim():
        return None
    for axis in range(tensor.dim()):
        if tensor.shape[axis] == rows * alone.shape[axis] and rows > 1:
            size = alone.shape[axis]
            part = tensor.narrow(axis, row * size, size)
            return part if part.shape == alone.shape else None
    return tensor if tensor.shape == alone.shape else None


def first_parting(probe: Probe, batch: Recording, alone: Recording, row: int, rows: int) -> Op | None:
    """The first operation after which the row alone holds other numbers than the row in the batch.

    Moves are left out: one row needs no copies where several do. None where the two take other steps before
    that.
    """
    for a, b in zip(_computing(batch), _computing(alone), strict=False):
        if a.name != b.name:
            return None
        for x, y in zip(a.outputs, b.outputs, strict=False):
            part = row_of(x.tensor, y.tensor, row, rows)
            if part is not None and apart(probe, part.double(), y.tensor.double(), 1e-12) > 0:
                return a
    return None


def _computing(record: Recording) -> Iterator[Op]:
    for op in record.ops:
        if not op.moves and op.name != "update" and any(o.tensor.is_floating_point() for o in op.outputs):
            yield op
