"""Freshly initialised public architectures, built from transformers' configurations; nothing is downloaded.

Each entry of FAMILIES makes a Subject: two layers of width 48, with the batch that its users give it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.doctor.subject import Subject
from zoo import batches
from zoo.batches import BOS, CLASSES, EOS, FEED_FORWARD, HEADS, LAYERS, MAX_LENGTH, PAD, VOCAB, WIDTH

os.environ["HF_HUB_OFFLINE"] = "1"  # a configuration needs no network; whatever asks for it is refused

FAMILIES: dict[str, Callable[[], Subject]] = {}

IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
# the names that most configurations use
USUAL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": MAX_LENGTH,
    **IDS,
}
# those of the encoder-decoders after BART
PAIRED: dict[str, Any] = {
    "vocab_size": VOCAB,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": FEED_FORWARD,
    "decoder_ffn_dim": FEED_FORWARD,
    "max_position_embeddings": MAX_LENGTH,
    **IDS,
}


@torch.no_grad()
def generate(model: torch.nn.Module, prompt_ids: Tensor, n_new: int) -> Tensor:
    """Greedy continuation with the model's key-value cache."""
    model.eval()
    ids, step, cache = prompt_ids, prompt_ids, None
    # the argument's name depends on transformers' version
    word = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    for _ in range(n_new):
        output = model(input_ids=step, use_cache=True, **{word: cache})
        cache = output.past_key_values
        step = output.logits[:, -1].argmax(-1, keepdim=True)  # [B, 1]
        ids = torch.cat([ids, step], dim=1)
    return ids


def _built(auto: str, prefix: str, settings: dict[str, Any]) -> torch.nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = getattr(transformers, f"{prefix}Config")(**settings)
    if hasattr(transformers, f"{prefix}For{auto}"):
        return getattr(transformers, f"{prefix}For{auto}")(config)
    return getattr(transformers, f"AutoModelFor{auto}").from_config(config)


def _optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def causal(name: str, prefix: str, has_cache: bool = True, **settings: Any) -> None:
    """Register a causal language model."""

    def build() -> Subject:
        model = _built("CausalLM", prefix, settings)
        batch = batches.next_words()
        return Subject(
            model=model,
            inputs=batch.inputs,
            kind="decoder",
            pad_id=PAD,
            targets=batch.targets,
            loss=batches.token_loss,
            optimizer=_optimizer(model),
            generate=generate if has_cache else None,
            name=name,
        )

    FAMILIES[name] = build


def encoder(name: str, prefix: str, auto: str = "MaskedLM", **settings: Any) -> None:
    """Register a bidirectional encoder: masked words, a class of each row, or images."""

    def build() -> Subject:
        model = _built(auto, prefix, settings)
        batch = {"MaskedLM": batches.hidden_words, "SequenceClassification": batches.sentences}.get(
            auto, batches.pictures
        )()
        return Subject(
            model=model,
            inputs=batch.inputs,
            kind="encoder",
            pad_id=PAD if "input_ids" in batch.inputs else None,
            targets=batch.targets,
            loss=batches.token_loss if auto == "MaskedLM" else batches.class_loss,
            optimizer=_optimizer(model),
            name=name,
        )

    FAMILIES[name] = build


def paired(name: str, prefix: str, start: int, **settings: Any) -> None:
    """Register an encoder-decoder; `start` is the token that its decoder begins with."""

    def build() -> Subject:
        model = _built("Seq2SeqLM", prefix, {**settings, "decoder_start_token_id": start})
        batch = batches.translations(start)
        return Subject(
            model=model,
            inputs=batch.inputs,
            kind="encoder-decoder",
            pad_id=PAD,
            targets=batch.targets,
            loss=batches.token_loss,
            optimizer=_optimizer(model),
            name=name,
        )

    FAMILIES[name] = build


GROUPED = {**USUAL, "num_key_value_heads": 2}
GPT = {
    "vocab_size": VOCAB,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": MAX_LENGTH,
    **IDS,
}

causal("gpt2", "GPT2", **GPT, n_inner=FEED_FORWARD)
causal("gpt-j", "GPTJ", **GPT, n_inner=FEED_FORWARD, rotary_dim=6)
causal("gpt-neox", "GPTNeoX", **USUAL, rotary_pct=0.5)
causal(
    "gpt-neo",
    "GPTNeo",
    **USUAL,
    num_layers=LAYERS,
    num_heads=HEADS,
    attention_types=[[["global", "local"], 1]],
)
causal("gpt-bigcode", "GPTBigCode", **GPT, n_inner=FEED_FORWARD)
causal("codegen", "CodeGen", **GPT, n_inner=FEED_FORWARD, rotary_dim=6, n_ctx=MAX_LENGTH)
causal("opt", "OPT", **{**USUAL, "ffn_dim": FEED_FORWARD, "word_embed_proj_dim": WIDTH})
causal("biogpt", "BioGpt", **USUAL)
causal("bloom", "Bloom", vocab_size=VOCAB, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS, **IDS)
causal("mpt", "Mpt", vocab_size=VOCAB, d_model=WIDTH, n_layers=LAYERS, n_heads=HEADS, max_seq_len=MAX_LENGTH)
causal("falcon", "Falcon", **USUAL, ffn_hidden_size=FEED_FORWARD)
causal("falcon-alibi", "Falcon", **USUAL, ffn_hidden_size=FEED_FORWARD, alibi=True, multi_query=False)
causal("llama", "Llama", **GROUPED)
causal("mistral", "Mistral", **GROUPED, sliding_window=5)
causal("mixtral", "Mixtral", **GROUPED, num_local_experts=3, num_experts_per_tok=2)
causal("qwen2", "Qwen2", **GROUPED)
causal("qwen3", "Qwen3", **GROUPED, head_dim=12)
causal("gemma", "Gemma", **{**GROUPED, "num_key_value_heads": 1}, head_dim=14)
causal("gemma2", "Gemma2", **GROUPED, head_dim=14, query_pre_attn_scalar=14, sliding_window=5)
causal("gemma3", "Gemma3Text", **GROUPED, head_dim=14, query_pre_attn_scalar=14, sliding_window=5)
causal("phi", "Phi", **USUAL)
causal("phi3", "Phi3", **GROUPED)
causal("stablelm", "StableLm", **GROUPED, partial_rotary_factor=0.5)
causal("starcoder2", "Starcoder2", **GROUPED)
causal("cohere", "Cohere", **GROUPED)
causal("olmo", "Olmo", **GROUPED)
causal("olmo2", "Olmo2", **GROUPED)
causal("granite", "Granite", **GROUPED, attention_multiplier=12**-0.5)
causal("smollm3", "SmolLM3", **GROUPED)
causal("glm", "Glm", **GROUPED, head_dim=12)
causal("nemotron", "Nemotron", **GROUPED)
causal(
    "gpt-oss", "GptOss", **GROUPED, head_dim=12, num_local_experts=3, num_experts_per_tok=2, sliding_window=5
)

encoder("bert", "Bert", **USUAL)
encoder("bert-classes", "Bert", "SequenceClassification", **USUAL, num_labels=CLASSES)
encoder("roberta", "Roberta", **{**USUAL, "type_vocab_size": 1})
encoder("roberta-classes", "Roberta", "SequenceClassification", **USUAL, num_labels=CLASSES)
encoder("xlm-roberta", "XLMRoberta", **USUAL)
encoder("camembert", "Camembert", **USUAL)
encoder("albert", "Albert", **USUAL, embedding_size=20)
encoder("distilbert", "DistilBert", vocab_size=VOCAB, dim=WIDTH, hidden_dim=FEED_FORWARD, n_layers=LAYERS,
        n_heads=HEADS, max_position_embeddings=MAX_LENGTH, pad_token_id=PAD)  # fmt: skip
encoder("electra", "Electra", **USUAL, embedding_size=20)
encoder(
    "electra-classes", "Electra", "SequenceClassification", **USUAL, embedding_size=20, num_labels=CLASSES
)
encoder("mpnet", "MPNet", **USUAL)
encoder("deberta-v2", "DebertaV2", **USUAL, relative_attention=True, position_buckets=8, share_att_key=True,
        pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_biased_input=False)  # fmt: skip
encoder("modernbert", "ModernBert", **USUAL, cls_token_id=BOS, sep_token_id=EOS, local_attention=6)

IMAGES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
IMAGES |= {"intermediate_size": FEED_FORWARD, "image_size": 24, "patch_size": 8, "num_labels": CLASSES}
encoder("vit", "ViT", "ImageClassification", **IMAGES)
encoder("deit", "DeiT", "ImageClassification", **IMAGES)
encoder("dinov2", "Dinov2", "ImageClassification", **IMAGES, mlp_ratio=2, use_mask_token=False)
# its bias of relative positions starts at zero, as published: order matters from the first step on
encoder("beit", "Beit", "ImageClassification", **IMAGES, use_relative_position_bias=True)

T5 = {"vocab_size": VOCAB, "d_model": WIDTH, "d_kv": 12, "d_ff": FEED_FORWARD, "num_layers": LAYERS}
T5 |= {"num_heads": HEADS, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, **IDS}
paired("t5", "T5", PAD, **T5)
# mT5 is left out: it starts at a loss of 22, and a report that says so is right
paired("umt5", "UMT5", PAD, **T5, feed_forward_proj="gated-gelu")
paired("bart", "Bart", EOS, **PAIRED)
paired("mbart", "MBart", EOS, **PAIRED)
paired("marian", "Marian", PAD, **PAIRED)
paired("pegasus", "Pegasus", PAD, **PAIRED)
paired("m2m100", "M2M100", EOS, **PAIRED)
paired("plbart", "PLBart", EOS, **PAIRED)
paired("blenderbot-small", "BlenderbotSmall", BOS, **PAIRED)
