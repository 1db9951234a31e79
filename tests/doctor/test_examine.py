"""An examination: causes before consequences, a crash that hides nothing, the same report every time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor import check as check_module
from headwise.doctor import examine as examine_module
from headwise.doctor.check import Check, Found, NotApplicable, Picture, Place, Severity, Tried, check
from headwise.doctor.examine import examine, examine_subject
from headwise.doctor.report import Report
from headwise.doctor.subject import Subject
from headwise.errors import ConfigError


class Model(nn.Module):
    """A decoder without its mask."""

    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(17, 8), nn.Embedding(32, 8)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.norm, self.last, self.head = nn.LayerNorm(8), nn.LayerNorm(8), nn.Linear(8, 17)
        self.masked = masked

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        y = self.norm(x)
        scores = self.query(y) @ self.key(y).mT / 8**0.5
        if self.masked:
            scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), float("-inf"))
        return self.head(self.last(x + scores.softmax(-1) @ self.value(y)))


IDS = torch.randint(1, 17, (6, 12), generator=torch.Generator().manual_seed(0))

Answers = dict[str, Any]


def answer(what: Any, seen: list[str] | None = None) -> Any:
    """The body of a check that yields these, or raises."""

    def body(probe: Any) -> Iterator[Found | Tried]:
        if seen is not None:
            seen.append("asked")
        for each in what if isinstance(what, list) else [what]:
            if isinstance(each, BaseException):
                raise each
            yield each

    return body


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Checks for the length of a test: made_up(number, name, answers, card...)."""
    held: dict[str, Check] = {}
    monkeypatch.setattr(check_module, "_registry", held)
    monkeypatch.setattr(examine_module, "checks", lambda: sorted(held.values(), key=lambda each: each.id))

    def add(id: str, name: str, what: Any, **card: Any) -> None:
        body = what if callable(what) else answer(what)
        body.__name__ = name.replace("-", "_")
        check(id=id, title=card.pop("title", "It is wrong"), why="It hurts.", fix="Mend it.", **card)(body)

    return add


def run(**more: Any) -> Report:
    return examine_subject(Subject(Model(), IDS, kind="decoder"), **more)


def names(report: Report) -> list[str]:
    return [finding.name for finding in report.findings]


# Causes before consequences


def test_what_a_cause_explains_goes_beneath_it(made_up: Any) -> None:
    made_up("HW101", "third", Found("c"))
    made_up("HW102", "second", Found("b"), explains={"third"})
    made_up("HW103", "first", Found("a"), explains={"second"})
    made_up("HW104", "alone", Found("d"))
    report = run()
    assert names(report) == ["first", "alone"]  # what explains most comes first
    assert report.findings[0].explains == ("third", "second") and report.findings[1].explains == ()
    assert {number: held.verdict for number, held in report.verdicts.items()} == dict.fromkeys(
        ("HW101", "HW102", "HW103", "HW104"), "found"
    )


def test_a_consequence_alone_is_told(made_up: Any) -> None:
    made_up("HW101", "consequence", Found("c"))
    made_up("HW102", "cause", Tried("everything"), explains={"consequence"})
    assert names(run()) == ["consequence"]


def test_of_two_that_explain_each_other_one_stays(made_up: Any) -> None:
    made_up("HW101", "one", Found("a"), explains={"two"})
    made_up("HW102", "two", Found("b"), explains={"one"})
    report = run()
    assert names(report) == ["one"] and report.findings[0].explains == ("two",)


def test_nor_do_three_in_a_ring_all_vanish(made_up: Any) -> None:
    made_up("HW101", "one", Found("a"), explains={"two"})
    made_up("HW102", "two", Found("b"), explains={"three"})
    made_up("HW103", "three", Found("c"), explains={"one"})
    report = run()
    assert names(report) == ["one"] and set(report.findings[0].explains) == {"two", "three"}


def test_a_note_does_not_explain_an_error_away(made_up: Any) -> None:
    made_up("HW101", "error", Found("a"))
    made_up("HW102", "note", Found("b"), severity="note", explains={"error"})
    report = run()
    assert names(report) == ["error", "note"] and report.findings[1].explains == ()


@pytest.mark.parametrize("severities", [("note", "error", "warning"), ("warning", "note", "error")])
def test_the_gravest_come_first_then_by_number(severities: tuple[Severity, ...], made_up: Any) -> None:
    for place, severity in enumerate((*severities, *severities)):
        made_up(f"HW10{place}", f"check-{place}", Found("x"), severity=severity)
    report = run()
    ranks = [("error", "warning", "note").index(finding.severity) for finding in report.findings]
    assert ranks == sorted(ranks)
    for rank in range(3):
        of_rank = [f.id for f, r in zip(report.findings, ranks, strict=True) if r == rank]
        assert of_rank == sorted(of_rank)


def test_a_finding_may_have_a_severity_of_its_own(made_up: Any) -> None:
    made_up("HW101", "mild", Found("a", severity="note", why="Not so bad.", fix="Leave it."))
    (finding,) = run().findings
    assert (finding.severity, finding.why, finding.fix) == ("note", "Not so bad.", "Leave it.")


def test_a_last_resort_is_explained_by_anything_as_grave(made_up: Any) -> None:
    made_up("HW701", "vague", Found("a"), last_resort=True)
    assert names(run()) == ["vague"]
    made_up("HW702", "mild", Found("b", severity="warning"))
    assert names(run()) == ["vague", "mild"]
    made_up("HW703", "sharp", Found("c"))
    report = run()
    assert names(report) == ["sharp", "mild"] and report.findings[0].explains == ("vague",)


# Findings


def test_a_finding_carries_the_card_and_what_was_found(made_up: Any) -> None:
    picture = Picture("matrix", "Weights", ((1.0,),))
    lines = tuple((Place("m.py", n), f"line {n}") for n in (3, 9, 4, 4, 5, 6))
    made_up(
        "HW101",
        "found",
        Found("saw it", at=Place("m.py", 3, "f"), module="a.b", related=lines, picture=picture),
    )
    (finding,) = run().findings
    assert (finding.id, finding.name, finding.severity, finding.title) == (
        "HW101",
        "found",
        "error",
        "It is wrong",
    )
    assert (finding.file, finding.line, finding.module, finding.evidence) == ("m.py", 3, "a.b", "saw it")
    assert (finding.why, finding.fix, finding.picture) == ("It hurts.", "Mend it.", picture)
    assert [r.line for r in finding.related] == [9, 4, 5]  # three, each once, and not the primary one


def test_without_a_line_there_is_none(made_up: Any) -> None:
    made_up("HW101", "found", Found("saw it"))
    (finding,) = run().findings
    assert (finding.file, finding.line) == ("", 0)


def test_the_first_found_counts_and_nothing_after_it_is_asked(made_up: Any) -> None:
    made_up("HW101", "twice", [Tried("a bit"), Found("one"), RuntimeError("never reached"), Found("two")])
    report = run()
    assert [f.evidence for f in report.findings] == ["one"] and report.verdicts["HW101"].verdict == "found"


# Verdicts


def test_the_four_verdicts(made_up: Any) -> None:
    made_up("HW101", "found", Found("saw it"))
    made_up("HW102", "clear", [Tried("six rows"), Tried("two tokens")])
    made_up("HW103", "undecided", NotApplicable("no targets were given"))
    made_up("HW104", "lacking", Found("never"), needs={"optimizer"})
    made_up("HW105", "broken", ValueError("a\nb"))
    made_up("HW106", "after", Found("also"))
    report = run()
    assert {number: (held.verdict, held.tried) for number, held in report.verdicts.items()} == {
        "HW101": ("found", "saw it"),
        "HW102": ("clear", "six rows; two tokens"),
        "HW103": ("not-applicable", "no targets were given"),
        "HW104": ("not-applicable", "no optimizer was given"),
        "HW105": ("could-not-run", "ValueError: a"),
        "HW106": ("found", "also"),
    }
    assert names(report) == ["found", "after"]


def test_a_crash_while_asking_what_is_lacking_is_told_too(
    made_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up("HW101", "broken", Found("never"), needs={"nothing known"})
    made_up("HW102", "fine", Tried("it"))
    verdicts = run().verdicts
    assert verdicts["HW101"].verdict == "could-not-run" and verdicts["HW102"].verdict == "clear"


def test_a_user_who_interrupts_is_heard(made_up: Any) -> None:
    made_up("HW101", "slow", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run()


# Choice


def test_checks_are_chosen_by_number_group_and_name(made_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up("HW101", "causal-leak", Tried("a"))
    made_up("HW102", "causal-missing-in-one-layer", Tried("a"))
    made_up("HW201", "no-scale", Tried("a"), quick=True)

    def asked(**more: Any) -> list[str]:
        return sorted(examine(Model(), IDS, **more).verdicts)

    assert asked() == ["HW101", "HW102", "HW201"]
    assert asked(select=["HW1"]) == ["HW101", "HW102"] and asked(select=["no-scale", "HW102"]) == [
        "HW102",
        "HW201",
    ]
    assert asked(ignore=["HW102", "no-scale"]) == ["HW101"] and asked(select=["HW1"], ignore=["HW101"]) == [
        "HW102"
    ]
    assert sorted(run(quick=True).verdicts) == ["HW201"]
    with pytest.raises(ConfigError, match="HW99"):
        examine(Model(), IDS, select=["HW999"])
    with pytest.raises(
        (ConfigError, TypeError), match="gpt"
    ):  # TypeError where types are checked at run time
        examine(Model(), IDS, kind="gpt")  # type: ignore[arg-type]


# The whole


def test_the_same_model_and_batch_give_the_same_bytes() -> None:
    torch.manual_seed(0)
    model = Model()
    reports: list[Report] = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # whatever the user's random state is
        reports.append(examine(model, IDS, kind="decoder", select=["HW1", "HW2", "HW3", "HW4"]))
    first, second = reports
    assert first.to_json() == second.to_json()
    assert first.to_html() == second.to_html() and str(first) == str(second)
    assert "causal-leak" in names(first)


def test_the_masked_twin_is_clean() -> None:
    torch.manual_seed(0)
    report = examine(Model(masked=True), IDS, kind="decoder", select=["HW1"])
    assert report.verdicts["HW101"].verdict == "clear" and names(report) == []


def test_what_was_assumed_is_told() -> None:
    report = examine(Model(), IDS, select=["HW101"])
    assert report.assumed["kind"] is None and report.assumed["vocab"] == 17
    assert report.assumed["inputs"] == [{"name": "ids", "role": "ids", "shape": [6, 12]}]
    assert report.assumed["dtype"] == "float64" and report.target == "Model"
    assert any("give --kind" in note for note in report.notes)
    assert not any(
        "give --kind" in note for note in examine(Model(), IDS, kind="decoder", select=["HW101"]).notes
    )


def test_a_model_that_cannot_be_called_is_a_usage_mistake_with_a_way_out(made_up: Any) -> None:
    class Wrong(Model):
        def forward(self, ids: Tensor) -> Tensor:
            raise RuntimeError("needs\nmore")

    made_up("HW101", "any", Tried("nothing"))
    with pytest.raises(
        ConfigError, match="could not be called on its batch: RuntimeError: needs; give `call`"
    ):
        examine(Wrong(), IDS)
    made_up("HW001", "does-not-run", Found("it fails there"), needs={"failure"})
    report = examine(Wrong(), IDS)  # unless a check says why
    assert names(report) == ["does-not-run"] and report.verdicts["HW101"].verdict == "not-applicable"
    assert "vocab" not in report.assumed


def test_notes_of_the_subject_come_first() -> None:
    parallel = nn.DataParallel(Model())
    report = examine_subject(Subject(parallel, IDS, kind="decoder"), select=lambda _: False, notes=("mine",))
    assert report.notes[0] == "mine" and "DataParallel" in report.notes[1] and report.target == "Model"


def test_a_model_that_gives_back_no_tensor_is_told_in_plain_words(made_up: Any) -> None:
    class Yields(Model):
        def forward(self, ids: Tensor) -> Any:
            yield super().forward(ids)

    made_up("HW101", "any", Tried("nothing"))
    with pytest.raises(
        ConfigError, match=r"was called on its batch, and there is .* a generator.*give `call`"
    ) as told:
        examine(Yields(), IDS)
    assert "NotApplicable" not in str(told.value)


def test_a_warning_takes_the_error_that_its_card_explains_and_becomes_one(made_up: Any) -> None:
    made_up("HW404", "mild", Found("a", severity="warning"), explains={"grave", "hint"})
    made_up("HW701", "grave", Found("b"), last_resort=True)
    made_up("HW703", "hint", Found("c", severity="note"))
    (finding,) = run().findings
    assert (finding.name, finding.severity, finding.explains) == ("mild", "error", ("grave", "hint"))
    made_up("HW801", "sharp", Found("d"), explains={"grave"})  # what is as grave explains it rather
    report = run()
    assert [(f.name, f.severity) for f in report.findings] == [("sharp", "error"), ("mild", "warning")]
    assert report.findings[0].explains == ("grave",)


def test_a_note_takes_no_error_even_where_its_card_explains_it(made_up: Any) -> None:
    made_up("HW404", "slight", Found("a", severity="note"), explains={"grave"})
    made_up("HW701", "grave", Found("b"))
    assert names(run()) == ["grave", "slight"]


def test_one_number_for_a_batch_is_no_reason_to_crash() -> None:
    class Sums(Model):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids).sum()

    assert not examine(Sums(), IDS, kind="decoder").with_verdict("could-not-run")


def test_weights_that_are_nan_have_a_line() -> None:
    model = Model(masked=True)
    with torch.no_grad():
        model.head.weight[0, 0] = torch.nan
    (finding,) = examine(model, IDS, kind="decoder", select=["HW901"]).findings
    assert finding.module == "head" and "parameter head.weight itself holds 1 NaN" in finding.evidence
    assert (finding.line, finding.related[0].role) != (0, "") and finding.fix.startswith("Draw or load it")
    assert finding.file == __file__
