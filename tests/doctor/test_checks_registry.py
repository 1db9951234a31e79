"""Every check's card is complete, its file bears its name, and a specimen shows what it finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwise.doctor import checks as package
from headwise.doctor.check import Check, checks
from headwise.doctor.needs import KNOWN

CHECKS = checks()
FOLDER = Path(package.__file__).parent
SPECIMENS = Path(__file__).parent / "specimens"

# The kinds of fault that must be known, by group: the numbers are free within it.
NAMES = {
    "HW0": "shape-mismatch",
    "HW1": "causal-leak causal-missing-in-one-layer causal-off-by-one causal-mask-in-encoder "
    "mask-inverted mask-after-softmax mask-weak-value mask-wrong-axis mask-excludes-self "
    "mask-not-forwarded fully-masked-row-nan padding-attended padding-pooled cross-mask-missing "
    "cross-mask-wrong",
    "HW2": "no-scale wrong-scale softmax-wrong-dim heads-scrambled heads-merged-wrong heads-summed "
    "heads-identical sequence-heads-swapped batch-mixed qkv-shared value-is-key "
    "output-projection-missing encoder-output-unused attention-ignored",
    "HW3": "positions-missing positions-on-batch-axis positions-swamp-embedding "
    "embedding-swamps-positions sinusoid-wrong rope-wrong learned-positions-constant "
    "positions-added-repeatedly positions-count-padding cache-position-wrong",
    "HW4": "residual-missing residual-from-normed norm-wrong-axis norm-formula-wrong norm-shared "
    "norm-missing final-norm-missing batchnorm-used norm-in-ffn eps-wrong activation-missing "
    "depth-unstable",
    "HW5": "softmax-before-cross-entropy logits-flattened-wrong pad-in-loss targets-not-shifted "
    "targets-shifted-twice decoder-input-not-shifted decoder-input-constant initial-loss-wrong",
    "HW6": "weights-accidentally-shared same-initialisation parameters-unregistered "
    "parameters-not-in-optimizer unused-parameters gradient-cut bad-init tying-lost",
    "HW7": "cannot-memorise learning-rate-too-high no-warmup-post-norm zero-grad-missing "
    "loss-scaled-wrong dropout-in-eval attention-collapsed",
    "HW8": "cache-mismatch left-padding-changes-answer batch-changes-answer",
    "HW9": "first-nan half-precision-overflow",
}

# How a sentence that says what to do does not open.
NO_VERBS = {"the", "a", "an", "there", "it", "this", "that", "if", "when", "in", "for", "with", "by", "you"}


@pytest.mark.parametrize("group", NAMES)
def test_every_kind_of_fault_has_its_check(group: str) -> None:
    held = {each.name for each in CHECKS if each.group == group}
    assert set(NAMES[group].split()) <= held


def by_name(each: Check) -> str:
    return each.name


@pytest.mark.parametrize("held", CHECKS, ids=by_name)
def test_the_file_bears_the_name(held: Check) -> None:
    file = FOLDER / f"{held.name.replace('-', '_')}.py"
    assert file.exists()
    assert held.ask.__module__ == f"{package.__name__}.{file.stem}"
    assert f'id="{held.id}"' in file.read_text(encoding="utf-8")


def test_every_file_holds_one_check() -> None:
    files = {file.stem.replace("_", "-") for file in FOLDER.glob("*.py")} - {"--init--"}
    assert files == {each.name for each in CHECKS}


@pytest.mark.parametrize("held", CHECKS, ids=by_name)
def test_the_card_says_what_why_and_what_to_do(held: Check) -> None:
    for text in (held.title, held.why, held.fix, held.doc):
        assert text and text == text.strip() and text.isascii()
    assert held.title[0].isupper() and not held.title.endswith(".") and "\n" not in held.title
    for text in (held.why, held.fix):
        assert text.endswith(".") and "\n" not in text
    assert held.fix[0].isupper()
    assert len(re.findall(r"[.!?] [A-Z]", held.why)) == 0, "why is one sentence"
    first = held.fix.split()[0].rstrip(",:;").lower()
    assert first == "bring" or (first not in NO_VERBS and not first.endswith("ing")), "fix opens with a verb"


@pytest.mark.parametrize("held", CHECKS, ids=by_name)
def test_what_it_explains_and_needs_exists(held: Check) -> None:
    names = {each.name for each in CHECKS}
    assert held.explains <= names, "a name that no check has"
    assert held.name not in held.explains
    assert held.needs <= KNOWN, "a need that nothing can tell"


@pytest.mark.parametrize("held", CHECKS, ids=by_name)
def test_it_has_a_specimen_that_marks_its_line(held: Check) -> None:
    files = sorted(SPECIMENS.glob(f"{held.id}_*.py"))
    assert files, f"no specimen {held.id}_*.py"
    for file in files:
        source = file.read_text(encoding="utf-8")
        assert re.search(rf"# BUG {held.id}\b", source), f"{file.name} marks no line"


def test_no_specimen_is_of_a_check_that_is_none() -> None:
    numbers = {file.name[:5] for file in SPECIMENS.glob("HW*.py")}
    assert numbers <= {each.id for each in CHECKS}
