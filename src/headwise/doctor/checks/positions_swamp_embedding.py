"""Compare the size of the positions with that of the tokens where the two are added."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import made_places, related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.positions import in_library, sizes, table_behind, token_lines
from headwise.doctor.probe import Probe

# Designs that train well lie between 0.7 (the paper: 0.71 to 1) and 6.3 (std 0.02 times sqrt(32), sinusoids);
# the mistake (std 0.02 and sinusoids, no sqrt(d_model)) gives 35, d_model^-0.5 without the factor 16 at 512.
MOST = 9.0
# A library's weights are mostly loaded, not drawn: Marian's configuration draws 0.02 beside sinusoids, 35.
MOST_IN_LIBRARY = 50.0


@check(
    id="HW303",
    title="The positions drown the token embeddings",
    why="At the start all words look alike to the model, which sees little more than where they stand; "
    "training has to undo that first.",
    fix="Multiply the token embedding by sqrt(d_model) before adding, or draw it as large as the positions.",
    severity="warning",
    needs={"tokens", "rows", "finite"},
    explains={"attention-collapsed", "bad-init"},
    quick=True,
)
def positions_swamp_embedding(probe: Probe) -> Iterator[Found | Tried]:
    tried: list[str] = []
    for each in sizes(probe):
        added, tokens, positions = each.added, each.tokens, each.positions
        if tokens < 1e-12:
            continue
        ratio = positions / tokens
        tried.append(f"positions {positions:.2g}, tokens {tokens:.2g}")
        if ratio > MOST:
            made = made_places(probe, table_behind(added.table))
            yield Found(
                f"where they are added, the positions have a root mean square of {positions:.2g} and the "
                f"token embeddings of {tokens:.2g}: {ratio:.0f} times as large ({MOST:.0f} is the most that "
                "is seen in designs that train well)",
                at=added.op.place,
                module=added.op.module,
                related=tuple(
                    related([*token_lines(probe, added), *made], "a table is made here", added.op.place)
                ),
                severity="note" if in_library(added.op) and ratio < MOST_IN_LIBRARY else None,
            )
            return
    yield Tried("; ".join(tried))
