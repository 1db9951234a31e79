"""The axis legend: one letter, one meaning, in every signature and shape comment.

B   batch                    D   model width (d_model)
Tq  query positions          H   heads (num_heads)
Tk  key positions            Hk  key-value heads (num_kv_heads)
T   positions (Tq = Tk)      Dh  head width (d_head)
Ts  source positions         F   feed-forward width (d_ff)
Tt  target positions         V   vocabulary
K   beams                    C   classes
P   parameters               N   tokens, all sequences of a batch in a row

Words such as patches, channels and pairs say themselves. # before a letter: that size, or 1.
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
    "Hk": "key-value heads, num_kv_heads",
    "Dh": "head width, d_head",
    "F": "feed-forward width, d_ff",
    "V": "vocabulary",
    "C": "classes",
    "N": "tokens, all sequences of a batch in a row",
    "K": "beams",
    "P": "parameters",
}
