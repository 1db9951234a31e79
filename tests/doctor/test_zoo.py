"""The benchmark's zoo: healthy models keep the laws, damages break them, and a copy stays damaged."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")
if BENCHMARKS not in sys.path:
    sys.path.append(BENCHMARKS)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]

SOME = ("gpt2", "llama", "bloom", "bert", "vit", "t5")
# damage, a model that it fits, the law that it breaks
HURT = (
    ("causal-mask-dropped", "gpt2", "future"),
    ("causal-mask-dropped", "bloom", "future"),
    ("rows-mixed", "vit", "rows"),
    ("padding-mask-ignored", "bert", "padding"),
    ("cross-attention-without-mask", "t5", "padding"),
    ("heads-split-without-transpose", "llama", "future"),
)


@pytest.mark.parametrize("name", SOME)
def test_a_healthy_model_keeps_the_laws(name: str) -> None:
    from zoo import laws
    from zoo.families import FAMILIES

    subject = FAMILIES[name]()
    measured = laws.measure(subject)
    assert laws.broken(measured) == []
    assert subject.kind == "encoder" or measured.future >= 0  # not nan: the question was asked


@pytest.mark.parametrize(("damage", "name", "law"), HURT)
def test_a_damage_breaks_its_law_and_survives_a_copy(damage: str, name: str, law: str) -> None:
    from zoo import laws
    from zoo.damages import DAMAGES, hurt
    from zoo.families import FAMILIES

    subject = hurt(DAMAGES[damage], FAMILIES[name]())
    moved = getattr(laws.measure(subject), law)  # measured on a copy
    assert moved > 1e-5
    assert len(laws.broken(laws.measure(subject))) >= 1
    kinds = [type(part) for part in copy.deepcopy(subject.model).modules()]
    assert kinds == [type(part) for part in subject.model.modules()]


def test_the_same_model_is_built_again() -> None:
    from zoo.families import FAMILIES

    one, other = (dict(FAMILIES["gpt2"]().model.named_parameters()) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_damage_that_does_not_fit_says_so() -> None:
    from zoo.damages import DAMAGES, hurt
    from zoo.families import FAMILIES
    from zoo.surgery import NotHere

    with pytest.raises(NotHere, match="made for"):
        hurt(DAMAGES["causal-mask-dropped"], FAMILIES["bert"]())
    with pytest.raises(NotHere, match="gate"):
        hurt(DAMAGES["activation-left-out"], FAMILIES["llama"]())


@pytest.mark.parametrize("name", ["gpt2", "vit"])  # the benchmark takes them all
def test_the_doctor_is_silent_on_a_healthy_model(name: str) -> None:
    from zoo.families import FAMILIES

    from headwise.doctor.examine import examine_subject

    findings = examine_subject(FAMILIES[name]()).findings
    assert [(f.name, f.evidence) for f in findings if f.severity != "note"] == []


@pytest.mark.parametrize(("damage", "name"), [("causal-mask-dropped", "gpt2")])
def test_the_doctor_finds_a_damage(damage: str, name: str) -> None:
    from zoo.damages import DAMAGES, hurt
    from zoo.families import FAMILIES

    from headwise.doctor.examine import examine_subject

    findings = examine_subject(hurt(DAMAGES[damage], FAMILIES[name]())).findings
    assert DAMAGES[damage].accepted & {f.name for f in findings if f.severity != "note"}


def test_a_mask_where_there_was_none_hides_what_it_should() -> None:
    """MPNet writes its attention out and adds its mask: True would be one more, not a key to look at."""
    from zoo import laws
    from zoo.batches import PAD, logits_of
    from zoo.damages import DAMAGES, hurt
    from zoo.families import FAMILIES

    subject = hurt(DAMAGES["encoder-masked-causally"], FAMILIES["mpnet"]())
    ids = torch.randint(PAD + 5, 90, (2, 9))
    other = ids.clone()
    other[:, -1] += 1
    unpadded = [{"input_ids": x, "attention_mask": torch.ones_like(x)} for x in (ids, other)]
    before, after = (logits_of(laws.call(subject.model.eval(), inputs)) for inputs in unpadded)
    assert torch.equal(before[:, :-1], after[:, :-1]) and not torch.equal(before[:, -1], after[:, -1])


def test_what_does_no_harm_is_left_out_of_the_count_with_its_reason() -> None:
    from doctor_zoo import Examined, judged, totals
    from zoo.damages import DAMAGES, NotHere, hurt
    from zoo.families import FAMILIES

    def got(*errors: str, crash: str = "") -> Examined:
        return Examined({"error": [*errors], "warning": [], "note": ["a-note"]}, [], 0.0, 0, crash)

    norms = DAMAGES["norms-left-out"]
    assert judged(norms, "gpt2", got("norm-missing", "bad-init")) == ("found", "also bad-init")
    assert judged(norms, "gpt2", got("bad-init")) == ("MISSED", "instead bad-init; noted a-note")
    assert judged(norms, "beit", got())[0] == "left out"
    assert judged(norms, "beit", got("norm-missing")) == (
        "NOT SILENT",
        "instead norm-missing; noted a-note",
    )
    assert judged(norms, "beit", got(crash="HW101 KeyError"))[0] == "NOT SILENT"
    counts = Counter({"found": 7, "MISSED": 1, "left out": 1})
    assert totals(counts, ["norms-left-out in beit: so"]).splitlines() == [
        "damages: 7 of 8 found, 1 left out because they do no harm there",
        "    norms-left-out in beit: so",
    ]
    assert totals(Counter({"found": 8}), []) == "damages: 8 of 8 found"
    for damage in DAMAGES.values():
        for name in damage.harmless_in:  # a name misspelt, or a damage that does not fit, would hide itself
            try:
                hurt(damage, FAMILIES[name]())
            except NotHere as error:
                pytest.fail(f"{damage.name} in {name}: {error}")
