"""Rehearse on the one batch: with the user's optimizer, with the same at a lower rate, with a tame one."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Picture, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import Course, lowered, optimizer_line, own, tame
from headwise.doctor.written import formula_of

LOWER = 1 / 30
LEAP = 0.08  # share of its size by which a step may change the median matrix; healthy recipes: 0.005 to 0.025


@check(
    id="HW702",
    title="The learning rate is too high",
    why="Each step overshoots: the loss diverges or settles on what a constant answer gives.",
    fix="Lower the peak rate (Adam: 1e-4 to 1e-3), and let it rise from zero over the first steps.",
    needs={"loss", "optimizer", "finite"},
    explains={"cannot-memorise", "attention-collapsed"},
)
def learning_rate_too_high(probe: Probe) -> Iterator[Found | Tried]:
    mine = own(probe)
    peak = max(mine.rates, default=0.0)
    if (_learns(mine) and mine.moved < LEAP) or peak < 1.5e-3:
        yield Tried(f"{len(mine.losses) - 1} steps took the loss from {mine.start:.2f} to {mine.end:.2f}")
        return
    better = 0.9 if mine.moved >= LEAP else 0.8
    control = mine
    for make in (lambda: lowered(probe, LOWER), lambda: lowered(probe, LOWER**2), lambda: tame(probe)):
        control = make()
        if control.end <= better * mine.end and (_learns(control) or mine.fell < 0 < control.fell):
            break
    else:
        yield Tried(f"the loss went from {mine.start:.2f} to {mine.end:.2f}, and no better at lower rates")
        return
    built = optimizer_line(probe)
    formula = formula_of(mine.set_at[0]) if mine.set_at else None
    place = formula or (mine.set_at[0] if mine.set_at else built)
    yield Found(
        f"in {len(mine.losses) - 1} steps on one batch, at rates up to {peak:.2g}, the loss went from "
        f"{mine.start:.2f} to {mine.end:.2f}, and one step changed a matrix by {mine.moved:.0%} of its size; "
        f"at rates up to {max(control.rates):.2g} it fell to {control.end:.2f}",
        at=place,
        related=tuple(related([*mine.set_at, built], "the optimizer is made here", place)),
        picture=curves("Loss on one batch", {"as given": mine, "at a lower rate": control}),
    )


def _learns(course: Course) -> bool:
    """Did the loss go down and stay down: by a third, or to near nothing?"""
    return course.fell > 1 / 3 and course.end <= 1.5 * course.best + 0.1


def curves(title: str, courses: dict[str, Course]) -> Picture:
    return Picture(
        "curve",
        title,
        tuple(tuple(course.losses) for course in courses.values()),
        x_label="step",
        y_label="loss (nats)",
        labels=tuple(courses),
        caption="The same batch at every step: a model that can learn at all takes it down.",
    )
