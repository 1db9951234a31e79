"""Each output word depends on the source but never on the words before it."""

import math

import torch
import torch.nn as nn

PAD, BOS, EOS, VOCAB = 0, 1, 2, 36


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size, maxlen=200):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        table = torch.zeros(maxlen, emb_size)
        table[:, 0::2] = torch.sin(pos * den)
        table[:, 1::2] = torch.cos(pos * den)
        self.register_buffer("table", table)

    def forward(self, token_embedding):
        return token_embedding + self.table[: token_embedding.size(1)]


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, emb_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_size)
        nn.init.normal_(self.embedding.weight, std=emb_size**-0.5)
        self.emb_size = emb_size

    def forward(self, tokens):
        return self.embedding(tokens) * math.sqrt(self.emb_size)


class Seq2SeqTransformer(nn.Module):
    def __init__(self, emb_size=48, nhead=4, num_layers=2, dropout=0.0):
        super().__init__()
        self.transformer = nn.Transformer(
            emb_size, nhead, num_layers, num_layers, 2 * emb_size, dropout, batch_first=True
        )
        self.src_tok_emb = TokenEmbedding(VOCAB, emb_size)
        self.tgt_tok_emb = TokenEmbedding(VOCAB, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size)
        self.generator = nn.Linear(emb_size, VOCAB)

    def forward(self, src, tgt, tgt_mask, src_padding, tgt_padding):
        src_emb = self.positional_encoding(self.src_tok_emb(src))
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(tgt))
        outs = self.transformer(
            src_emb,
            tgt_emb,
            tgt_mask=tgt_mask,
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=tgt_padding,
            memory_key_padding_mask=src_padding,
        )
        return self.generator(outs)


def run(model, src, tgt):
    tgt_mask = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
    return model(src, tgt, tgt_mask, src == PAD, tgt == PAD)


def pairs():
    src = torch.zeros(6, 9, dtype=torch.long)
    tgt = torch.zeros(6, 11, dtype=torch.long)
    for row, n in enumerate([9, 5, 7, 4, 9, 6]):
        words = torch.randint(3, VOCAB, (n,))
        src[row, :n] = words
        tgt[row, 0], tgt[row, 1 : n + 1], tgt[row, n + 1] = BOS, (words + 8) % (VOCAB - 3) + 3, EOS
    return src, tgt


def subject():
    torch.manual_seed(0)
    model = Seq2SeqTransformer()
    src, tgt = pairs()
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
    return {
        "model": model,
        "inputs": (src, torch.full_like(tgt[:, 1:], BOS)),  # BUG HW507
        "call": run,
        "kind": "encoder-decoder",
        "pad_id": PAD,
        "targets": tgt[:, 1:],
        "loss": lambda logits, y: loss_fn(logits.reshape(-1, VOCAB), y.reshape(-1)),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9),
    }
