"""Compare the size of the tokens with that of the positions where the two are added."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.positions import in_library, is_fixed, sizes, token_lines
from headwise.doctor.probe import Probe

# The paper's embedding gives 1 to 1.4, nn.Embedding's own N(0, 1) 1.4, xavier times sqrt(d_model) up to 1.6;
# N(0, 1) times sqrt(d_model) gives 9.8 at a width of 48 and 32 at 512.
MOST = 8.0
# A learned table can grow: std 0.02 beside N(0, 1), ratio 50, is common and trains.
MOST_LEARNED = 100.0


@check(
    id="HW304",
    title="The token embeddings drown the positions",
    why="The positions are lost beside the words: the model hardly sees order, and must first shrink its "
    "words.",
    fix="Take one of the two out: nn.Embedding's own N(0, 1), or the factor sqrt(d_model) with a std of "
    "d_model^-0.5.",
    severity="warning",
    needs={"tokens", "rows", "finite"},
    explains={"attention-collapsed", "bad-init"},
    quick=True,
)
def embedding_swamps_positions(probe: Probe) -> Iterator[Found | Tried]:
    tried: list[str] = []
    for each in sizes(probe):
        added, tokens, positions = each.added, each.tokens, each.positions
        if positions < 1e-12:
            continue
        ratio = tokens / positions
        tried.append(f"tokens {tokens:.2g}, positions {positions:.2g}")
        most = MOST if is_fixed(probe, added.table) else MOST_LEARNED
        if ratio > most:
            scaled = added.token.op
            place = scaled.place if scaled is not None and scaled.name in {"mul", "mul_"} else added.op.place
            yield Found(
                f"where they are added, the token embeddings have a root mean square of {tokens:.2g} and the "
                f"positions of {positions:.2g}: {ratio:.0f} times as large (designs that train well "
                f"stay below {most:.0f})",
                at=place,
                module=added.op.module,
                related=tuple(
                    related([added.op.place, *token_lines(probe, added)], "it is added or made here", place)
                ),
                severity="note" if in_library(added.op) else None,
            )
            return
    yield Tried("; ".join(tried))
