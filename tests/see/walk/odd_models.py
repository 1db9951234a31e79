"""Models with shapes that invite a wrong name: shared keys in five axes, windows, rows of one, two inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from see.walk.walk_models import VOCAB


class Language(nn.Module):
    """Token ids, one pre-norm block about an attention of 16 in width, scores of the vocabulary."""

    def __init__(self, attention: nn.Module, width: int = 16) -> None:
        super().__init__()
        self.table, self.attention = nn.Embedding(VOCAB, width), attention
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        x = x + self.attention(self.first(x))
        return self.head(x + self.inner(self.second(x)))


class Shared(nn.Module):
    """Four heads share two keys and values, told apart by axes of an einsum, not by copies."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q = self.q(x).view(rows, length, 2, 2, 4)
        k, v = self.kv(x).view(rows, length, 2, 2, 4).unbind(2)
        scores = torch.einsum("btkgd,bskd->bkgts", q, k) / 2
        hidden = ~torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return self.out(torch.einsum("bkgts,bskd->btkgd", weights, v).reshape(rows, length, width))


class Folded(nn.Module):
    """Heads folded into the batch, as torch's own functions of old had it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (p.reshape(rows, length, 4, 4).transpose(1, 2).reshape(rows * 4, length, 4) for p in parts)
        y = (torch.bmm(q, k.transpose(1, 2)) / 2).softmax(-1) @ v
        return self.out(y.reshape(rows, 4, length, 4).transpose(1, 2).reshape(rows, length, width))


class Heads(nn.Module):
    """Weights with an axis of heads, and einsum throughout."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        shape = heads, width, width // heads
        self.q, self.k, self.v = (nn.Parameter(torch.randn(shape) * 0.1) for _ in range(3))
        self.o = nn.Parameter(torch.randn(heads, width // heads, width) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("btd,hde->bhte", x, w) for w in (self.q, self.k, self.v))
        weights = (torch.einsum("bhqe,bhke->bhqk", q, k) / q.shape[-1] ** 0.5).softmax(-1)
        return torch.einsum("bhqk,bhke,hed->bqd", weights, v, self.o)


class Turned(nn.Module):
    """Queries and keys turned as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))

    def turn(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[1]).float(), torch.tensor([1.0, 0.1]))
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], 2, 2))
        turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).view(*x.shape[:2], 4, 4) for layer in (self.q, self.k, self.v))
        q, k, v = (each.transpose(1, 2) for each in (self.turn(q), self.turn(k), v))
        return self.out(((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class Windows(nn.Module):
    """Attention within windows of 4 x 4 patches of an image [N, 3, 32, 32], and ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16), nn.Linear(16, 10)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).permute(0, 2, 3, 1)
        rows, high, wide, width = x.shape
        y = self.norm(x).view(rows, high // 4, 4, wide // 4, 4, width)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, width)
        q, k, v = self.qkv(y).view(-1, 16, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = self.out(((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, width))
        y = y.view(rows, high // 4, wide // 4, 4, 4, width).permute(0, 1, 3, 2, 4, 5)
        return self.head((x + y.reshape(rows, high, wide, width)).mean((1, 2)))


class Listener(nn.Module):
    """Sound [N, 8 features, frames], halved in length by a convolution, and token ids that look at it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(8, 16, 3, 2, 1)
        self.table, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)
        self.encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)

    def forward(self, sound: Tensor, tgt: Tensor) -> Tensor:
        heard = self.encoder(self.stem(sound).transpose(1, 2))
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.head(self.decoder(self.table(tgt), heard, tgt_mask=mask))


class Towers(nn.Module):
    """An image and a text, each by itself, and then compared."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.stem = nn.Embedding(VOCAB, 16), nn.Conv2d(3, 16, 4, 4)
        self.text, self.image = (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True) for _ in range(2))

    def forward(self, ids: Tensor, pixels: Tensor) -> Tensor:
        text = self.text(self.table(ids)).mean(1)
        image = self.image(self.stem(pixels).flatten(2).transpose(1, 2)).mean(1)
        return F.normalize(text, dim=-1) @ F.normalize(image, dim=-1).T


class TimeFirst(nn.Module):
    """torch's whole Transformer on ids [length, rows]."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)
        layer = nn.TransformerEncoderLayer(16, 4, 32)
        encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.both = nn.Transformer(16, 4, 1, 1, 32, custom_encoder=encoder)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[0])
        return self.head(self.both(self.table(src), self.table(tgt), tgt_mask=mask))


class Scan(nn.Module):
    """A projection that widens, a running sum over the positions, one that narrows, and the way round."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.down = nn.Embedding(VOCAB, 16), nn.Linear(16, 64), nn.Linear(32, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        y, gate = self.up(x).chunk(2, -1)
        return x + self.down(F.silu(y).cumsum(1) * F.silu(gate))


class Squeezed(nn.Module):
    """Channels of an image weighed by a gate that the whole image gives."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 10)
        self.less, self.more = nn.Linear(16, 4), nn.Linear(4, 16)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        gate = torch.sigmoid(self.more(F.relu(self.less(x.mean((2, 3))))))
        return self.head((x + x * gate[:, :, None, None]).mean((2, 3)))


class Experts(nn.Module):
    """Half of the tokens go through another layer: rows picked by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        chosen = torch.arange(x.shape[0] * x.shape[1]).view(x.shape[:2]) % 2 == 0
        out[chosen] += F.relu(self.one(x[chosen]))
        return out + x.cumsum(1)


class Mixer(nn.Module):
    """Patches mixed by one feed-forward layer, their features by another of another width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16), nn.LayerNorm(16)
        self.along = nn.Sequential(nn.Linear(9, 36), nn.GELU(), nn.Linear(36, 9))
        self.across = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).flatten(2).transpose(1, 2)
        x = x + self.along(self.one(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.two(x))
