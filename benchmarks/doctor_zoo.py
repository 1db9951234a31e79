"""The doctor on models that are right, and on the same models damaged by hand.

    python benchmarks/doctor_zoo.py [--only SUBSTR] [--no-damages | --damages-only] [--damage SUBSTR]
                                    [--models 8] [--laws] [--gpt2-small]

Healthy models: freshly initialised public architectures (transformers' configurations, nothing is
downloaded), nn.Transformer used in four ways, x-transformers where installed, and our own configurations. A
line each: parameters, findings, seconds, and the peak resident size above that of the loaded model, in MB:
the kernel's high-water mark (VmHWM of /proc/self/status), set back before each examination through
/proc/self/clear_refs.

Damages: each is applied to `--models` of the public models (0: to all that it fits), every one in its turn,
and is found where one of the accepted names is among the errors and warnings (or the notes, for what some
build on purpose, such as one projection for keys and values). Models in which a damage does no harm are left
out of the count, each with the reason, and there the doctor must be silent. --laws does not ask the
doctor, but measures that the healthy models keep the laws and that the damages break what they should.

Exit code 1: a healthy model has an error or a warning, a damage was missed, was reported where it does no
harm, or fits fewer than 8 models.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from zoo import batches, laws
from zoo.damages import DAMAGES, Damage, hurt
from zoo.families import FAMILIES
from zoo.others import OTHERS
from zoo.surgery import NotHere

from headwise.doctor.subject import Subject

LEAST_MODELS = 8
BIG_PROMISE = (90.0, 6.0)  # seconds, and times the parameters' bytes


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (highest) of this process, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{key}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None, f"no {key} in /proc/self/status"
    return int(found.group(1)) * 1024


def forget_peak() -> None:
    """Set the high-water mark back to what is resident now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


@dataclass(frozen=True)
class Examined:
    """A report with what it cost; findings by severity, or the crash in one line."""

    findings: dict[str, list[str]]
    evidence: list[str]
    seconds: float
    peak: int
    crash: str = ""


def examined(subject: Subject) -> Examined:
    """Examine, and measure the time and the peak above the loaded model."""
    from headwise.doctor.examine import examine_subject

    forget_peak()
    before, began = resident("VmRSS"), time.perf_counter()
    found: dict[str, list[str]] = {"error": [], "warning": [], "note": []}
    evidence: list[str] = []
    crash = ""
    try:
        report = examine_subject(subject, target=subject.name)
        for finding in report.findings:
            found[finding.severity].append(finding.name)
            where = f"{Path(finding.file).name}:{finding.line}" if finding.file else "-"
            evidence.append(f"{finding.severity} {finding.name} {where} {finding.evidence}")
        failed = [
            f"{id} {each.tried}" for id, each in report.verdicts.items() if each.verdict == "could-not-run"
        ]
        crash = "; ".join(failed)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        crash = f"{type(error).__name__} {error} ({Path(last.filename).name}:{last.lineno})"
    seconds = time.perf_counter() - began
    return Examined(found, evidence, seconds, max(0, resident("VmHWM") - before), crash)


def healthy(builders: dict[str, Callable[[], Subject]], verbose: bool) -> int:
    """A line for each model; the number of those with an error, a warning or a crash."""
    print(f"{'healthy model':28} {'parameters':>11} {'seconds':>8} {'peak MB':>8}  findings", flush=True)
    wrong, slowest = 0, 0.0
    for name, build in builders.items():
        subject = build()
        count = sum(parameter.numel() for parameter in subject.model.parameters())
        got = examined(subject)
        slowest = max(slowest, got.seconds)
        is_wrong = bool(got.findings["error"] or got.findings["warning"] or got.crash)
        wrong += is_wrong
        said = [f"{severity}s: {', '.join(names)}" for severity, names in got.findings.items() if names]
        said += [f"COULD NOT RUN: {got.crash}"] if got.crash else []
        print(
            f"{name:28} {count:11,} {got.seconds:8.2f} {got.peak / 1e6:8.1f}  {'; '.join(said) or 'none'}",
            flush=True,
        )
        for line in got.evidence if verbose or is_wrong else []:
            if verbose or not line.startswith("note"):
                print(f"    {line}", flush=True)
    print(f"healthy: {len(builders)} models, {wrong} with an error or a warning; slowest {slowest:.2f} s\n")
    return wrong


def patients(damage: Damage, names: list[str], most: int, turn: int) -> list[tuple[str, Subject]]:
    """The damaged subjects: the models that the damage fits, from the turn-th on: each gets its share."""
    found: list[tuple[str, Subject]] = []
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        try:
            found.append((name, hurt(damage, FAMILIES[name]())))
        except NotHere:
            continue
        if len(found) == most:
            break
    return found


def judged(damage: Damage, name: str, got: Examined) -> tuple[str, str]:
    """The verdict on one report ("found", "MISSED", "left out", "NOT SILENT"), and what else it says."""
    accepted = frozenset[str]() if name in damage.harmless_in else damage.accepted
    harmful = got.findings["error"] + got.findings["warning"]
    told = harmful + (got.findings["note"] if damage.is_design else [])
    others = [each for each in harmful if each not in accepted]
    if name in damage.harmless_in:
        verdict = "NOT SILENT" if harmful or got.crash else "left out"
    else:
        verdict = "found" if accepted & set(told) else "MISSED"
    also = f"{'also' if verdict == 'found' else 'instead'} {', '.join(others)}" if others else ""
    is_noted = verdict != "found" and bool(got.findings["note"])
    notes = f"noted {', '.join(got.findings['note'])}" if is_noted else ""
    crash = f"COULD NOT RUN {got.crash}" if got.crash else ""
    return verdict, "; ".join(filter(None, (also, notes, crash)))


def damaged(names: list[str], chosen: str, most: int, verbose: bool) -> int:
    """A table of damages and models, and its totals; the number of misses."""
    counts: Counter[str] = Counter()
    left_out: list[str] = []
    for turn, damage in enumerate(DAMAGES.values()):
        if chosen not in damage.name:
            continue
        few = patients(damage, names, most, 7 * turn)
        print(f"\n{damage.name}: {' or '.join(sorted(damage.accepted))}", flush=True)
        if len(few) < LEAST_MODELS and len(names) == len(FAMILIES) and (most == 0 or most >= LEAST_MODELS):
            print(f"    FITS ONLY {len(few)} MODELS", flush=True)
            counts["too few"] += 1
        for name, subject in few:
            got = examined(subject)
            verdict, said = judged(damage, name, got)
            counts[verdict] += 1
            if verdict == "left out":
                left_out.append(f"{damage.name} in {name}: {damage.harmless_in[name]}")
            print(f"    {name:20} {verdict:10} {got.seconds:6.2f} s  {said}", flush=True)
            for line in got.evidence if verbose else []:
                print(f"        {line}", flush=True)
    print(f"\n{totals(counts, left_out)}\n")
    return counts["MISSED"] + counts["NOT SILENT"] + counts["too few"]


def totals(counts: Counter[str], left_out: list[str]) -> str:
    """What the table of damages comes to: a line, and one for each model that was left out."""
    said = f"damages: {counts['found']} of {counts['found'] + counts['MISSED']} found"
    if counts["NOT SILENT"]:
        said += f", {counts['NOT SILENT']} reported where they do no harm"
    if left_out:
        said += f", {len(left_out)} left out because they do no harm there"
    return "\n".join([said, *(f"    {line}" for line in left_out)])


def lawful(builders: dict[str, Callable[[], Subject]], names: list[str], chosen: str) -> int:
    """The zoo without the doctor: healthy models keep the laws, damages do what they say."""
    wrong = 0
    for name, build in builders.items():
        broken = laws.broken(laws.measure(build()))
        wrong += bool(broken)
        print(f"{name:28} {'; '.join(broken) or 'keeps the laws'}", flush=True)
    for damage in DAMAGES.values():
        if chosen in damage.name:
            few = patients(damage, names, 0, 0)
            wrong += len(few) < LEAST_MODELS and len(names) == len(FAMILIES)
            print(f"{damage.name:44} fits {len(few)} models", flush=True)
    return wrong


def gpt2_small() -> int:
    """The 124 M configuration in a process of its own: seconds, and peak above the loaded model."""
    import transformers

    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    ids = torch.randint(0, 50_000, (2, 64))
    subject = Subject(
        model=model,
        inputs={"input_ids": ids[:, :-1]},
        kind="decoder",
        targets=ids[:, 1:],
        loss=batches.token_loss,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        name="GPT-2 small",
    )
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    got = examined(subject)
    times = got.peak / size
    print(f"GPT-2 small: {size / 4e6:.0f} M parameters, {got.seconds:.1f} s (at most {BIG_PROMISE[0]:.0f}),")
    print(f"peak {got.peak / 1e6:.0f} MB = {times:.2f} times its parameters (at most {BIG_PROMISE[1]:.0f})")
    for line in [*got.evidence, *([f"COULD NOT RUN {got.crash}"] if got.crash else [])]:
        print(f"    {line}")
    wrong = got.findings["error"] + got.findings["warning"]
    return bool(wrong or got.crash or got.seconds > BIG_PROMISE[0] or times > BIG_PROMISE[1])


def main() -> int:
    """Print the tables; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--damage", default="", help="damages whose name contains this")
    parser.add_argument("--models", type=int, default=LEAST_MODELS, help="models a damage; 0: all it fits")
    parser.add_argument("--no-damages", action="store_true")
    parser.add_argument("--damages-only", action="store_true")
    parser.add_argument("--laws", action="store_true", help="measure the zoo itself, without the doctor")
    parser.add_argument("--gpt2-small", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="every finding's evidence")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.gpt2_small and options.in_this_process:
        return gpt2_small()
    if options.gpt2_small:  # nothing else may have grown the process before
        command = [sys.executable, __file__, "--gpt2-small", "--in-this-process"]
        return subprocess.run(command, check=False, env=os.environ).returncode
    builders = {name: build for name, build in {**FAMILIES, **OTHERS}.items() if options.only in name}
    names = [name for name in FAMILIES if options.only in name]
    if not builders:
        parser.error(
            f"no model's name contains {options.only!r}; there are {', '.join([*FAMILIES, *OTHERS])}"
        )
    if options.damage and not any(options.damage in name for name in DAMAGES):
        parser.error(f"no damage's name contains {options.damage!r}; there are {', '.join(DAMAGES)}")
    if options.laws:
        return bool(lawful(builders, names, options.damage))
    next(iter(builders.values()))()  # imports are not the doctor's time
    wrong = 0
    if not options.damages_only:
        wrong += healthy(builders, options.verbose)
    if not options.no_damages and names:
        wrong += damaged(names, options.damage, options.models, options.verbose)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
