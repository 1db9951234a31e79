"""Translation of the beginning of a sentence ignores its end, although the encoder should see it all."""

import torch
import torch.nn as nn
from torch import Tensor

PAD_IDX, BOS_IDX, EOS_IDX = 0, 1, 2
SRC_VOCAB, TGT_VOCAB = 40, 33


class Seq2SeqTransformer(nn.Module):
    def __init__(self, emb_size: int = 32, nhead: int = 4, layers: int = 2, dropout: float = 0.1):
        super().__init__()
        self.src_tok_emb = nn.Embedding(SRC_VOCAB, emb_size)
        self.tgt_tok_emb = nn.Embedding(TGT_VOCAB, emb_size)
        self.src_pos_emb = nn.Embedding(64, emb_size)
        self.tgt_pos_emb = nn.Embedding(64, emb_size)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                emb_size, nhead, 4 * emb_size, dropout, batch_first=True, norm_first=True
            ),
            layers,
            norm=nn.LayerNorm(emb_size),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(
                emb_size, nhead, 4 * emb_size, dropout, batch_first=True, norm_first=True
            ),
            layers,
            norm=nn.LayerNorm(emb_size),
        )
        self.generator = nn.Linear(emb_size, TGT_VOCAB)

    def embed_source(self, src: Tensor) -> Tensor:
        return self.src_tok_emb(src) + self.src_pos_emb(torch.arange(src.size(1), device=src.device))

    def embed_target(self, tgt: Tensor) -> Tensor:
        return self.tgt_tok_emb(tgt) + self.tgt_pos_emb(torch.arange(tgt.size(1), device=tgt.device))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        src_pad, tgt_pad = src == PAD_IDX, tgt == PAD_IDX
        causal = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).triu(1)
        x, n = self.embed_source(src), src.size(1)
        memory = self.encoder(x, torch.ones(n, n, dtype=torch.bool).triu(1), src_pad)  # BUG HW104
        y = self.embed_target(tgt)
        h = self.decoder(y, memory, causal, tgt_key_padding_mask=tgt_pad, memory_key_padding_mask=src_pad)
        return self.generator(h)


def create_batch(size: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Pairs of sentences; the target has its own words and about half the source's length."""
    src = torch.full((size, 12), PAD_IDX)
    tgt = torch.full((size, 9), PAD_IDX)
    for i in range(size):
        n = [9, 4, 12, 7, 6, 10, 5, 8][i % 8]
        m = n // 2 + 1
        src[i, :n] = torch.randint(3, SRC_VOCAB, (n,))
        tgt[i, 0], tgt[i, m + 1] = BOS_IDX, EOS_IDX
        tgt[i, 1 : m + 1] = src[i, :m] % (TGT_VOCAB - 3) + 3
    return (src, tgt[:, :-1]), tgt[:, 1:]


def subject():
    torch.manual_seed(0)
    transformer = Seq2SeqTransformer()
    inputs, tgt_out = create_batch(8)
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD_IDX)

    def loss(logits, labels):
        return loss_fn(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    return {
        "model": transformer,
        "inputs": inputs,
        "kind": "encoder-decoder",
        "pad_id": PAD_IDX,
        "targets": tgt_out,
        "loss": loss,
        "optimizer": torch.optim.Adam(transformer.parameters(), lr=5e-4),
    }
