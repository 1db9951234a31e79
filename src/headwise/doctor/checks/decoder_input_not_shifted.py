"""In an encoder-decoder, see whether the decoder reads at each position the label it must predict there."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.adapt import flatten
from headwise.doctor.batch import numbers
from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import cut_line, first_of, input_lines, learned, loss_lines, share, target_lines
from headwise.doctor.probe import Probe


@check(
    id="HW506",
    title="The decoder's input is the target itself, not shifted right",
    why="The decoder reads the answer it must give: loss near zero in training, nonsense in decoding.",
    fix="Feed the target shifted right behind a start token: [BOS, y1 ... y(n-1)] for labels [y1 ... yn].",
    needs={"encoder-decoder", "loss", "sequence", "tokens"},
    quick=True,
)
def decoder_input_not_shifted(probe: Probe) -> Iterator[Found | Tried]:
    label, ids = learned(probe)
    same, following = share(label, ids, 0, probe.pad_id), share(label, ids, 1, probe.pad_id)
    first = set(numbers(ids[:, 0]))
    if same < 0.95 or following > 0.5 or len(first) == 1:
        yield Tried(
            f"{same:.0%} of the decoder's positions read their own label, {following:.0%} the one before"
        )
        return
    main = probe.main
    assert main is not None
    cut = cut_line(probe, flatten(probe.adapted.handed.inputs)[main.leaf], first=True)
    place, others = first_of([*input_lines(probe, main.leaf), *target_lines(probe), *loss_lines(probe)])
    if cut is not None:
        place, others = cut, [place, *others] if place is not None else others
    yield Found(
        f"{same:.0%} of the decoder's positions read the label they must predict, and the rows start with "
        f"{len(first)} different tokens: no start token was put in front",
        at=place,
        related=tuple(related(others, "input and targets meet here", place)),
    )
