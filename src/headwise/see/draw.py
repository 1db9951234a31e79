"""`headwise.draw`: masks, position encodings and training curves as pictures, each with what to see in it.

headwise.draw.mask(keep).save("mask.png")
"""

from __future__ import annotations

from headwise.see.curves import draw_curves as curves
from headwise.see.drawing import Drawing
from headwise.see.masks import draw_mask as mask
from headwise.see.positions import draw_positions as positions
from headwise.see.similarity import draw_similarity as similarity

__all__ = ["Drawing", "curves", "mask", "positions", "similarity"]
