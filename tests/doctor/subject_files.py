"""Pieces of the files that a user may hand to the doctor, and a way to write them down."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

IMPORTS = "import torch\nfrom torch import nn\n"

MODEL = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True)

    def forward(self, x):
        return self.layer(x)


def stack(number, width):
    return nn.ModuleList([Block(width) for _ in range(number)])


class Model(nn.Module):
    def __init__(self, vocab=21, width=16):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = stack(2, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""

SUBJECT = """
def subject():
    model = Model()
    ids = torch.randint(0, 21, (4, 9))
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "encoder",
        "targets": ids[:, 1:],
        "loss": lambda y, t: nn.functional.cross_entropy(y.flatten(0, 1), t.flatten()),
        "optimizer": torch.optim.Adam(model.parameters()),
    }
"""


def write(folder: Path, *parts: str, name: str = "my_model.py") -> str:
    """A file of these pieces; its path as a user would type it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(IMPORTS + "".join(parts), encoding="utf-8")
    return str(path)


def module_of(path: str) -> types.ModuleType:
    """The file imported under its own name, and not remembered."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, vars(module))  # not by the loader: its __pycache__ may be stale
    return module
