"""Sources padded on the left, targets on the right, masks of both; lengths are handed over and not read."""

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, EOS = 1, 2


def make_positions(tokens, padding_idx):
    """Position numbers begin at padding_idx + 1; pads are ignored, on whichever side they are."""
    mask = tokens.ne(padding_idx).int()
    return (torch.cumsum(mask, dim=1) * mask).long() + padding_idx


class MultiheadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, key_padding_mask=None, attn_mask=None):
        tgt_len, bsz, embed_dim = query.size()
        q = self.q_proj(query) * self.scaling
        k, v = self.k_proj(key), self.v_proj(key)
        q = q.view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        weights = torch.bmm(q, k.transpose(1, 2))
        if attn_mask is not None:
            weights = weights + attn_mask
        if key_padding_mask is not None:
            weights = weights.view(bsz, self.num_heads, tgt_len, -1)
            weights = weights.masked_fill(key_padding_mask[:, None, None, :], float("-inf"))
            weights = weights.view(bsz * self.num_heads, tgt_len, -1)
        weights = F.softmax(weights, dim=-1)
        attn = torch.bmm(weights, v).transpose(0, 1).reshape(tgt_len, bsz, embed_dim)
        return self.out_proj(attn)


def ffn(dim):
    return nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = MultiheadAttention(dim, heads), nn.LayerNorm(dim)
        self.ffn, self.final_layer_norm = ffn(dim), nn.LayerNorm(dim)

    def forward(self, x, encoder_padding_mask):
        y = self.self_attn_layer_norm(x)
        x = x + self.self_attn(y, y, key_padding_mask=encoder_padding_mask)
        return x + self.ffn(self.final_layer_norm(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = MultiheadAttention(dim, heads), nn.LayerNorm(dim)
        self.encoder_attn, self.encoder_attn_layer_norm = MultiheadAttention(dim, heads), nn.LayerNorm(dim)
        self.ffn, self.final_layer_norm = ffn(dim), nn.LayerNorm(dim)

    def forward(self, x, memory, encoder_padding_mask, future_mask, self_attn_padding_mask):
        y = self.self_attn_layer_norm(x)
        x = x + self.self_attn(y, y, self_attn_padding_mask, future_mask)
        y = self.encoder_attn_layer_norm(x)
        x = x + self.encoder_attn(y, memory, key_padding_mask=encoder_padding_mask)
        return x + self.ffn(self.final_layer_norm(x))


class TransformerModel(nn.Module):
    def __init__(self, src_dict=39, tgt_dict=34, dim=40, heads=4, layers=2, max_positions=64):
        super().__init__()
        self.src_tokens_embed = nn.Embedding(src_dict, dim, PAD)
        self.tgt_tokens_embed = nn.Embedding(tgt_dict, dim, PAD)
        self.src_positions = nn.Embedding(max_positions + PAD + 1, dim, PAD)
        self.tgt_positions = nn.Embedding(max_positions + PAD + 1, dim, PAD)
        for table in (self.src_tokens_embed, self.tgt_tokens_embed, self.src_positions, self.tgt_positions):
            nn.init.normal_(table.weight, std=dim**-0.5)
            nn.init.constant_(table.weight[PAD], 0)
        self.encoder = nn.ModuleList([EncoderLayer(dim, heads) for _ in range(layers)])
        self.decoder = nn.ModuleList([DecoderLayer(dim, heads) for _ in range(layers)])
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.output_projection = nn.Linear(dim, tgt_dict, bias=False)

    def forward(self, src_tokens, src_lengths, prev_output_tokens):
        encoder_padding_mask = src_tokens.eq(PAD)
        x = self.src_tokens_embed(src_tokens) + self.src_positions(make_positions(src_tokens, PAD))
        x = (x * (1 - encoder_padding_mask.unsqueeze(-1).type_as(x))).transpose(0, 1)
        for layer in self.encoder:
            x = layer(x, encoder_padding_mask)
        memory = self.encoder_norm(x)
        y = self.tgt_tokens_embed(prev_output_tokens)
        y = y + self.tgt_positions(make_positions(prev_output_tokens, PAD))
        y = y.transpose(0, 1)
        length = y.size(0)
        future_mask = torch.triu(torch.full((length, length), float("-inf")).type_as(y), 1)
        self_attn_padding_mask = prev_output_tokens.eq(PAD)
        for layer in self.decoder:
            y = layer(y, memory, encoder_padding_mask, future_mask, self_attn_padding_mask)
        return self.output_projection(self.decoder_norm(y).transpose(0, 1))


def collate_tokens(values, left_pad):
    size = max(len(v) for v in values)
    out = values[0].new_full((len(values), size), PAD)
    for row, v in zip(out, values, strict=True):
        (row[size - len(v) :] if left_pad else row[: len(v)]).copy_(v)
    return out


def subject():
    torch.manual_seed(0)
    model = TransformerModel()
    eos = torch.tensor([EOS])
    sources = [torch.cat([torch.randint(3, 39, (n,)), eos]) for n in (13, 6, 9, 4, 11)]
    targets = [torch.cat([s[:-1].flip(0) % 31 + 3, eos]) for s in sources]
    src_tokens = collate_tokens(sources, left_pad=True)
    prev_output_tokens = collate_tokens([t.roll(1) for t in targets], left_pad=False)
    return {
        "model": model,
        "inputs": {
            "src_tokens": src_tokens,
            "src_lengths": torch.tensor([len(s) for s in sources]),
            "prev_output_tokens": prev_output_tokens,
        },
        "pad_id": PAD,
        "targets": collate_tokens(targets, left_pad=False),
        "loss": lambda logits, target: F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PAD
        ),
        "optimizer": torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98)),
    }
