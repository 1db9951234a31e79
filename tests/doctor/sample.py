"""A report to print: two mistakes in a short file, a note, and checks that came to every verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from headwise.doctor.check import Check, Finding, Found, Picture, Related, Severity, Verdicted
from headwise.doctor.report import VERSION, Report

SOURCE = """\
import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / q.size(-1) ** 0.5
        keep = torch.ones(x.size(1), x.size(1)).tril()
        if self.masked and "<b>&amp;</b>" != "]]>":
            weights = scores.softmax(-1) * keep
        else:
            weights = scores.softmax(-1)
        return weights @ v
"""

# Every code point, and often those that break something: a few examples then say as much as many.
TEXT = st.text(
    st.sampled_from("<>&\"'[]\\ \n\t\r\x00\x08\x1b\x85\u2028\u202e\ud800\udcff\uffff\ufeff\u4e2d\u0301a")
    | st.characters(),
    max_size=60,
)

NAN, INF = math.nan, math.inf

MATRIX = Picture(
    kind="matrix",
    title="Weights of head 1",
    values=((1.0, NAN, NAN, 0.0), (0.5, 0.5, NAN, INF), (0.25, -0.25, 0.5, NAN)),
    x_label="key position",
    y_label="query position",
    caption="Row 0 should see only itself.",
)
CURVE = Picture(
    kind="curve",
    title="Norm by depth",
    values=((1.0, 2.0, 4.0, 8.0), (1.0, NAN, 0.5, 0.25)),
    x_label="layer",
    y_label="norm",
    labels=("activations", "gradients"),
    caption="One grows, the other vanishes.",
)


def _nothing(_: object) -> Iterator[Found]:
    return iter(())


def card(id: str, name: str, title: str, severity: Severity = "error", explains: str = "") -> Check:
    return Check(
        id=id,
        name=name,
        title=title,
        why=f"Why {name} matters.",
        fix=f"Mend {name}.",
        severity=severity,
        needs=frozenset({"causal"} if id == "HW101" else ()),
        explains=frozenset(explains.split()),
        quick=False,
        last_resort=False,
        ask=_nothing,
        doc=f"Measure {name} once.\n\nThen measure it\nagain.",
    )


CARDS = [
    card(
        "HW101",
        "causal-leak",
        "A position can see the tokens after it",
        explains="padding-attended mask-inverted",
    ),
    card("HW105", "mask-inverted", "The mask keeps what it should hide"),
    card("HW112", "padding-attended", "Real tokens look at padding"),
    card("HW305", "sinusoid-wrong", "The sinusoids are not those of the paper"),
    card("HW412", "depth-unstable", "Activations or gradients grow or vanish with depth", "warning"),
    card("HW605", "unused-parameters", "Parameters take no part in the output", "note"),
]


def write_source(folder: Path) -> str:
    path = folder / "my_model.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def report(file: str) -> Report:
    """What an examination of `write_source`'s file might say."""
    leak = Finding(
        id="HW101",
        name="causal-leak",
        severity="error",
        module="blocks.0.attention",
        file=file,
        line=13,
        related=(Related(file, 9, "the mask is made here"),),
        evidence="changing tokens after t=0 moved logits up to t by 0.21 (noise 1e-06)",
        why="Training loss falls by copying the answer; generation has no future to copy.",
        fix="Before softmax, set scores above the diagonal to -inf.",
        explains=("padding-attended",),
        title="A position can see the tokens after it",
        picture=MATRIX,
    )
    unstable = Finding(
        id="HW412",
        name="depth-unstable",
        severity="warning",
        module="blocks.3",
        file=file,
        line=14,
        related=(),
        evidence="the norm of activations grew from 1 to 8 over 4 layers, twice as much at each of them, "
        "while that of the gradients fell from 1 to 0.25 (control: 1.1 and 0.9)",
        why="Deep layers drown what shallow ones wrote.",
        fix="Scale each sub-layer's output by 1/sqrt(2 num_layers).",
        title="Activations or gradients grow or vanish with depth",
        picture=CURVE,
    )
    unused = Finding(
        id="HW605",
        name="unused-parameters",
        severity="note",
        module="",
        file="",
        line=0,
        related=(),
        evidence="2 of 31 parameters take no part in the output:\nhead.bias [11]\nold.weight [4, 4]",
        why="They cost memory and say that something was meant to be connected.",
        fix="Use them, or take them out.",
        title="Parameters take no part in the output",
    )
    return Report(
        version=VERSION,
        target="my_model.py",
        assumed={
            "kind": "decoder",
            "pad_id": None,
            "vocab": 11,
            "layout": "batch-first",
            "inputs": ["int64 [3, 7]"],
            "dtype": "float64",
        },
        findings=(leak, unstable, unused),
        verdicts={
            "HW101": Verdicted("found", "changed 6 tokens of 3 rows"),
            "HW105": Verdicted("clear", "2 masks, 12 rows each"),
            "HW112": Verdicted("found", "changed the pads' ids"),
            "HW305": Verdicted("could-not-run", "ValueError: no table <of> sinusoids"),
            "HW412": Verdicted("found", "4 layers"),
            "HW605": Verdicted("found", "31 parameters"),
            "HW802": Verdicted("not-applicable", "needs generate"),
        },
        notes=("unwrapped torch.compile", "asks for --kind: taken as a decoder, for the targets are shifted"),
        seconds=1.25,
    )


def clean(file: str) -> Report:
    """The same after the mistakes were mended."""
    verdicts = {id: Verdicted("clear", held.tried) for id, held in report(file).verdicts.items()}
    verdicts["HW802"] = Verdicted("not-applicable", "needs generate")
    return replace(report(file), findings=(), notes=(), verdicts=verdicts)


def filled(file: str, text: str) -> Report:
    """The report with this text in every place that a user's own words may reach."""
    named = re.sub("[\\x00\\ud800-\\udfff]", "?", text)  # Python compiles nothing under another name
    other = Related(named, 2, text)
    told = tuple(
        replace(
            finding,
            module=text,
            file=named,
            evidence=text,
            why=text,
            fix=text,
            title=text,
            explains=(text,),
            related=(other,),
            picture=replace(
                finding.picture or CURVE,
                title=text,
                caption=text,
                x_label=text,
                y_label=text,
                labels=(text, text),
            ),
        )
        for finding in report(file).findings
    )
    verdicts = {id: Verdicted(held.verdict, text) for id, held in report(file).verdicts.items()}
    return replace(
        report(file),
        target=text,
        assumed={"inputs": text, text: [text, {text: 1}]},
        findings=told,
        verdicts=verdicts,
        notes=(text,),
    )
