"""What is told, when, how gravely, and with which check; what training does on purpose is not blamed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwise.doctor.check import checks
from headwise.see.watch.judge import CHECKS, Judge, Unusual, told_of
from headwise.see.watch.measure import AttentionSeen, HeadSeen, NormSeen
from headwise.see.watch.nonfinite import NotFinite
from headwise.see.watch.sample import LayerSeen, Sample

USUAL = HeadSeen(0.8, 0.3, 0.2)


def sample(step: int, **values: Any) -> Sample:
    base = Sample(
        step=step, loss=3.0, rate=1e-3, gradient=1.0, norms={"n": NormSeen(1.0, 1.0, 2.0)},
        attentions={"a": AttentionSeen(1.0, 1.0, 1.0, 0.5, (USUAL, USUAL), (1.0, 0.6))},
        layers={f"blocks.{n}": LayerSeen(1.0, 0.1, 1e-3) for n in range(4)},
    )  # fmt: skip
    return replace(base, **values)


def heard(samples: list[Sample], missing: tuple[str, ...] = ()) -> list[Unusual]:
    judge = Judge()
    return [found for each in samples for found in judge.hear(each, missing)]


def attention(spread: float = 0.5, *heads: HeadSeen) -> dict[str, AttentionSeen]:
    return {"a": AttentionSeen(1.0, 1.0, 1.0, spread, heads or (USUAL,))}


def layers(**changes: Any) -> dict[str, LayerSeen]:
    known = {f"blocks.{n}": LayerSeen(1.0, 0.1, 1e-3) for n in range(4)}
    return known | {"blocks.0": LayerSeen(**{"activation": 1.0, "gradient": 0.1, "update": 1e-3} | changes)}


def test_the_checks_that_are_named_are_the_doctors() -> None:
    known = {card.id: card.name for card in checks()}
    assert {id: known.get(id) for id in CHECKS} == CHECKS


def test_a_healthy_training_is_not_blamed() -> None:
    assert heard([sample(step, loss=3.0 / step) for step in range(1, 400, 20)]) == []


@pytest.mark.parametrize(
    ("values", "lasts", "severity", "check", "words"),
    [
        ({"norms": {"n": NormSeen(0.1, 1.0, 0.03, eps=0.1)}}, 1, "warning", "HW410", "its eps, 0.1"),
        ({"norms": {"n": NormSeen(0.1, 1.0, 1e-4, eps=1e-5)}}, 1, "note", "HW410", "outweighs it; training"),
        ({"norms": {"n": NormSeen(0.1, 1.0, 9.0, is_even=False)}}, 1, "warning", "HW404", "does not normal"),
        ({"norms": {"n": NormSeen(3.0, 3.1, 2.0, eps=1e-5)}}, 1, "note", "HW404", "it is its gain (rms 3.1)"),
        ({"norms": {"n": NormSeen(0.3, 0.9, 2.0, eps=1e-5)}}, 1, "note", "HW404", "it is its gain (rms 0.9)"),
        ({"norms": {"n": NormSeen(90.0, 88.0, 2.0)}}, 1, "warning", "HW702", "its gain has grown to 88"),
        ({"attentions": attention(0.5, HeadSeen(0.01, 0.96, 0.3))}, 1, "warning", "HW707", "before training"),
        ({"attentions": attention(0.0)}, 3, "warning", "HW707", "uniform and stays so"),
        ({"attentions": attention(0.5, HeadSeen(0.1, 0.97, 0.96))}, 3, "note", "HW707", "a head 0"),
        ({"layers": layers(gradient=1e-6)}, 2, "warning", "HW412", "100,000 times as long"),
        ({"layers": layers(gradient=None)}, 3, "warning", "HW605", "no gradient reaches blocks.0"),
        ({"layers": layers(gradient=0.0)}, 4, "warning", "HW606", "blocks.0 is exactly 0"),
        ({"gradient": 0.0}, 2, "warning", "HW606", "every gradient is exactly 0"),
        ({"without": ("pooler.weight",)}, 3, "note", "HW605", "pooler.weight"),
        ({"still": ("head.bias",)}, 3, "note", "HW604", "did not move head.bias"),
        ({"layers": layers(update=3.0)}, 1, "warning", "HW702", "blocks.0 by up to 300%"),
    ],
)  # fmt: skip
def test_what_is_told(values: dict[str, Any], lasts: int, severity: str, check: str, words: str) -> None:
    samples = [sample(number, **values) for number in range(1, lasts + 3)]
    found = [each for each in heard(samples) if each.check == check and words in each.what]
    assert [(each.step, each.severity) for each in found] == [(lasts, severity)]
    assert f"headwise doctor FILE --select {check}" in str(found[0]) and CHECKS[check] in str(found[0])
    # what comes and goes does not last
    if lasts > 1:
        flicker = [s if s.step % 2 else sample(s.step) for s in samples]
        if "layers" not in values or lasts > 2:
            assert [each for each in heard(flicker) if words in each.what] == []


def test_what_is_the_same_at_many_places_is_one_sentence() -> None:
    norms = {name: NormSeen(0.1, 1.0, 0.03, eps=0.1) for name in "abcde"}
    (found,) = heard([sample(1, norms=norms)])
    assert found.what.endswith("; the same at b, c, d and 1 more")


def test_parameters_in_no_optimizer() -> None:
    (found,) = heard([sample(1), sample(2)], missing=("head.weight",))
    assert found.check == "HW604" and "head.weight" in found.what


def test_a_rate_that_is_warming_up_is_not_blamed_and_one_that_hardly_moves_is_noted() -> None:
    slow = {"layers": {"blocks.0": LayerSeen(1.0, 0.1, 1e-7)}}
    rising = [sample(step, rate=1e-9 * 3**step, **slow) for step in range(1, 4)]
    assert heard(rising) == []
    (found,) = heard([sample(step, **slow) for step in range(1, 9)])
    assert found.severity == "note" and "hardly learns" in found.what
    ending = [sample(1), *(sample(step, rate=1e-6, **slow) for step in range(2, 9))]
    assert heard(ending) == []


def test_a_jump_of_the_gradient_and_a_loss_that_rises() -> None:
    (jump,) = heard([*(sample(step) for step in range(1, 5)), sample(5, gradient=1e4)])
    assert jump.severity == "note" and "jumped to 1e+04" in jump.what
    losses = [3.0, 2.0, 2.0, 9.0, 10.0, 11.0, 12.0]
    risen = [sample(step, loss=loss) for step, loss in enumerate(losses, 1)]
    (found,) = heard(risen)
    assert (found.step, found.severity) == (7, "note") and "began at 3" in found.what  # a critic's loss may
    wild = [replace(each, gradient=20.0 if each.step > 5 else 1.0) for each in risen]
    (found,) = heard(wild)
    assert found.severity == "warning" and "training diverges" in found.what


@pytest.mark.parametrize(
    "losses", [[0.001, 0.15, 0.2, 0.15, 0.15, 0.2], [-1.0, 0.5, 0.5, 0.5, 0.5], [2, 5, 2, 5, 2, 5]]
)
def test_a_loss_about_nothing_or_one_that_goes_up_and_down_is_not_blamed(losses: list[float]) -> None:
    assert heard([sample(step, loss=loss) for step, loss in enumerate(losses, 1)]) == []


def test_small_weights_may_grow_by_much_at_first() -> None:
    moved = {"blocks.0": LayerSeen(1.0, 0.1, 0.3)}
    assert heard([sample(step, layers=moved) for step in range(1, 21, 4)]) == []
    (found,) = heard([sample(step, layers=moved) for step in range(21, 41, 4)])
    assert found.check == "HW702" and "by up to 30%" in found.what


def test_an_input_that_stays_as_small_as_eps_is_told_late() -> None:
    small = {"norms": {"n": NormSeen(0.1, 1.0, 1e-4, eps=1e-5)}}
    first, late = heard([sample(step, **small) for step in (1, 50, 100, 150, 200, 250, 300)])
    assert (first.step, first.severity, late.step, late.severity) == (1, "note", 300, "warning")
    assert "does not make it grow" in late.what


def test_uniform_attention_is_only_noted_late() -> None:
    flat = attention(0.01, HeadSeen(0.999, 0.2, 0.15))
    assert heard([sample(step, attentions=flat) for step in range(1, 190, 10)]) == []
    (found,) = heard([sample(step, attentions=flat) for step in range(1, 400, 20)])
    assert found.severity == "note" and "all keys alike" in found.what


@pytest.mark.parametrize(
    ("bad", "is_half", "check"),
    [
        (NotFinite(3, "forward", "x", "_softmax"), False, "HW111"),
        (NotFinite(3, "forward", "x", "log"), False, "HW901"),
        (NotFinite(3, "backward", "x", "_softmax"), False, "HW901"),
        (NotFinite(3, "loss", "x"), True, "HW902"),
    ],
)
def test_numbers_that_are_not_finite(bad: NotFinite, is_half: bool, check: str) -> None:
    found = told_of(bad, is_half=is_half)
    assert (found.check, found.severity, found.step) == (check, "error", 3)
