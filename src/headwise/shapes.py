"""The axis legend: one letter, one meaning, in every signature and shape comment.

B   batch                    D   model width (d_model)
Tq  query positions          H   heads (num_heads)
Tk  key positions            Dh  head width (d_head)
T   positions (Tq = Tk)      F   feed-forward width (d_ff)
Ts  source positions         V   vocabulary
Tt  target positions         N   tokens, all sequences of a batch in a row
K   beams                    P   parameters
"""

from __future__ import annotations

LEGEND: dict[str, str] = {
    "B": "batch",
    "Tq": "query positions",
    "Tk": "key positions",
    "T": "positions, where queries and keys are the same",
    "Ts": "source positions",
    "Tt": "target positions",
    "D": "model width, d_model",
    "H": "heads, num_heads",
    "Dh": "head width, d_head",
    "F": "feed-forward width, d_ff",
    "V": "vocabulary",
    "N": "tokens, all sequences of a batch in a row",
    "K": "beams",
    "P": "parameters",
}
