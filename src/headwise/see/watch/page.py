"""report.html of a training that was watched: what is unusual, and every curve with what to see in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from headwise.doctor.page_style import CSS
from headwise.doctor.places import excerpt, place, visible
from headwise.doctor.text import counted
from headwise.pages import document
from headwise.see.watch.judge import Unusual
from headwise.see.watch.plot import figure
from headwise.see.watch.sample import Sample
from headwise.see.watch.words import RANK, latest

if TYPE_CHECKING:
    from headwise.see.watch.watcher import Watch

STYLE = """
.hw-report svg .usual { fill: var(--clear); fill-opacity: .12; }
.hw-report svg .grid { fill: none; stroke: var(--rule); stroke-width: .6; }
"""


def page(watch: Watch) -> str:
    """The whole page, self-contained, without a script."""
    name = type(watch.model).__name__
    return document(f"headwise watch: {visible(name)}", CSS + STYLE, _main(watch, name))


def _main(watch: Watch, name: str) -> str:
    grave = [each for each in watch.findings if each.severity != "note"]
    kind = "error" if any(each.severity == "error" for each in grave) else "warning" if grave else "clear"
    said = f"{counted(len(grave), 'unusual thing')}" if grave else "Nothing unusual"
    head = [
        '<main class="hw-report">\n<header>\n<h1>headwise watch</h1>\n',
        f'<p class="target">{_text(name)}</p>\n',
        f'<p class="summary {kind}">{said} in {counted(watch.step, "step")}, '
        f"{len(watch.history)} of them measured</p>\n",
        "".join(f'<p class="remark">Note: {_text(note)}</p>\n' for note in watch.notes),
        "</header>\n",
    ]
    found = sorted(watch.findings, key=lambda each: RANK[each.severity])
    body = [*(_finding(each) for each in found), _latest(watch.history), *_curves(watch.history)]
    return "".join([*head, *body, "</main>\n"])


def _finding(each: Unusual) -> str:
    parts = [
        f'<section class="finding {each.severity}">\n<h2><span class="badge {each.severity}">{each.severity}'
        f"</span> Step {each.step}</h2>\n<p>{_text(each.what)}</p>\n"
    ]
    lines = excerpt(each.file, each.line) if each.file else []
    if lines:
        told = "".join(
            f"<mark>{number}  {escape(code)}</mark>"
            if number == each.line
            else f"<span>{number}  {escape(code)}</span>"
            for number, code in lines
        )
        parts.append(
            '<figure class="source"><figcaption class="place">'
            f"{_text(place(each.file, each.line))}</figcaption>"
            f'<pre tabindex="0" aria-label="source, line {each.line} marked">{told}</pre></figure>\n'
        )
    command = f"headwise doctor FILE --select {each.check}"
    parts.append(
        f"<p>Ask next: <code>{_text(command)}</code> ({_text(each.name)}); "
        f"<code>headwise explain {each.check}</code> says what it looks for.</p>\n</section>\n"
    )
    return "".join(parts)


def _latest(history: Sequence[Sample]) -> str:
    if not history:
        return ""
    lines = "".join(f"<li>{_text(line)}</li>" for line in latest(history[-1]))
    return f"<section>\n<h2>The last measured step</h2>\n<ul>{lines}</ul>\n</section>\n"


def _curves(history: Sequence[Sample]) -> Iterator[str]:
    if not history:
        return
    drawn = _Drawn(history)
    for title, figures in (
        ("Training", drawn.training()),
        ("Norms", drawn.norms()),
        ("Attention", drawn.attention()),
        ("Layers", drawn.layers()),
    ):
        told = "".join(figures)
        if told:
            yield f"<section>\n<h2>{title}</h2>\n{told}</section>\n"


class _Drawn:
    """The figures of a history, by subject."""

    def __init__(self, history: Sequence[Sample]) -> None:
        self._history = history
        self._steps = [sample.step for sample in history]

    def _figure(
        self, title: str, caption: str, of: Callable[[Sample], Mapping[str, float | None]], unit: str,
        *, is_log: bool = False, band: tuple[float, float] | None = None,
    ) -> str:  # fmt: skip
        rows = [of(sample) for sample in self._history]
        series = {
            name: [row.get(name) for row in rows] for name in dict.fromkeys(n for row in rows for n in row)
        }
        return figure(title, caption, self._steps, series, unit, is_log=is_log, band=band)

    def training(self) -> Iterator[str]:
        yield self._figure(
            "Loss", "As the loop or the model told it; it falls, quickly first.",
            lambda sample: {"loss": sample.loss}, "loss",
        )  # fmt: skip
        yield self._figure(
            "Length of the gradient",
            "Over all layers, as the optimizer gets it. A jump of a hundred times is told.",
            lambda sample: {"gradient": sample.gradient}, "length", is_log=True,
        )  # fmt: skip
        yield self._figure(
            "Learning rate", "Of the optimizer's first group.", lambda sample: {"rate": sample.rate}, "rate"
        )
        for name in dict.fromkeys(name for sample in self._history for name in sample.logged):
            yield self._figure(
                f"Logged: {name}", "As the loop logged it.",
                lambda sample, name=name: {name: sample.logged.get(name)}, name,
            )  # fmt: skip

    def norms(self) -> Iterator[str]:
        yield self._figure(
            "Output of each norm",
            "0.8 to 1.2 is usual; below 0.5 or above 2.0 is told. A gain that is learnt moves it on purpose.",
            lambda sample: {name: norm.std for name, norm in sample.norms.items()}, "std", band=(0.8, 1.2),
        )  # fmt: skip
        yield self._figure(
            "What enters each norm", "In a pre-norm stack it grows with depth, slowly.",
            lambda sample: {name: norm.entered for name, norm in sample.norms.items()}, "rms", is_log=True,
        )  # fmt: skip

    def attention(self) -> Iterator[str]:
        yield self._figure(
            "Entropy of each head",
            "As a share of the most possible: 1 looks at all allowed keys alike, 0 at one. Heads part from "
            "one another as they learn.",
            _entropies, "share",
        )  # fmt: skip
        for letter, word in (("q", "queries"), ("k", "keys"), ("v", "values")):
            yield self._figure(
                f"Std of the {word}", "As projected, before any scaling; a slow drift is usual.",
                lambda sample, letter=letter: {
                    name: getattr(each, letter) for name, each in sample.attentions.items()
                },
                "std",
            )  # fmt: skip
        yield self._figure(
            "Output projection: std out over std in",
            "Within a tenth of 1 at the start is what some texts expect; what it is follows from how the "
            "weights are drawn.",
            _projections, "ratio", band=(0.9, 1.1),
        )  # fmt: skip

    def layers(self) -> Iterator[str]:
        for what, title, caption, unit in (
            ("gradient", "Gradient of each layer",
             "Like layers lie within a factor of a thousand of one another.", "length"),
            ("activation", "Result of each layer", "Its size grows slowly with depth, and settles.", "rms"),
            ("update", "How far a step moves each layer",
             "The update's length over that of the matrices: about 0.001 is usual, above 0.1 the rate is too "
             "high, below 0.00001 it hardly learns.", "share of its length"),
        ):  # fmt: skip
            yield self._figure(
                title, caption,
                lambda sample, what=what: {n: getattr(layer, what) for n, layer in sample.layers.items()},
                unit, is_log=True,
            )  # fmt: skip


def _entropies(sample: Sample) -> dict[str, float | None]:
    return {
        f"{name} head {number}": head.entropy
        for name, each in sample.attentions.items()
        for number, head in enumerate(each.heads)
    }


def _projections(sample: Sample) -> dict[str, float | None]:
    ends = {name: each.projection for name, each in sample.attentions.items()}
    return {name: out / into for name, pair in ends.items() if pair for into, out in (pair,) if into > 0}


def _text(text: str) -> str:
    return escape(visible(text))
