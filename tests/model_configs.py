"""Small models of every kind, named for whom they resemble: laws are tried on all of them."""

from __future__ import annotations

import pytest

from headwise.config import ModelConfig, PatchConfig, RotaryConfig
from torch_layers import small_config

_BARE: dict[str, object] = {
    "norm": "pre",
    "norm_kind": "rms",
    "feedforward_bias": False,
    "scale_embedding": False,
}
_SHARED: dict[str, object] = {"num_heads": 6, "num_kv_heads": 2, "d_head": 4}

# Decoder-only models; each position scheme at least once, each with another way of everything else.
LANGUAGE_MODELS: dict[str, dict[str, object]] = {
    "paper": {},
    "gpt": {"norm": "pre", "positions": "learned", "activation": "gelu-tanh", "attention_bias": True},
    "llama": {**_BARE, **_SHARED, "positions": "rotary", "activation": "silu", "gated": True},
    "qwen": {
        **_BARE,
        "num_kv_heads": 1,
        "d_head": 6,
        "positions": "rotary",
        "rotary": RotaryConfig(scaling="yarn", factor=4.0, original_length=8),
        "qk_norm": True,
        "attention_bias": True,
        "attention_output_bias": False,
        "tie_embeddings": False,
    },
    "mistral": {**_BARE, **_SHARED, "positions": "rotary", "window": 3, "gated": True},
    "neox": {
        "norm": "pre",
        "parallel_blocks": True,
        "positions": "rotary",
        "rotary": RotaryConfig(share=0.5),
        "attention_bias": True,
        "output_bias": True,
    },
    "bloom": {"norm": "pre", "positions": "alibi", "embedding_norm": True, "activation": "gelu"},
    "t5": {**_BARE, "positions": "relative", "scale_attention": False, "scale_output": True, "gated": True},
    "no positions": {"positions": "none", "tie_embeddings": False},
}

TEXT_ENCODERS: dict[str, dict[str, object]] = {
    "bert": {
        "positions": "learned",
        "activation": "gelu",
        "attention_bias": True,
        "embedding_norm": True,
        "num_segments": 2,
        "output_bias": True,
        "scale_embedding": False,
    },
    "modern": {**_BARE, **_SHARED, "positions": "rotary", "activation": "gelu", "gated": True},
    "t5": {**_BARE, "positions": "relative", "scale_attention": False, "pooling": "mean"},
    "alibi": {"norm": "pre", "positions": "alibi", "parallel_blocks": True, "tie_embeddings": False},
    "paper": {"pooling": "mean"},
}

PATCHES = PatchConfig(height=6, width=8, size=2, channels=3)
IMAGE_MODELS: dict[str, dict[str, object]] = {
    "vit": {"norm": "pre", "positions": "learned", "activation": "gelu", "attention_bias": True},
    "mean": {"norm": "pre", "positions": "none", "pooling": "mean"},
    "paper": {"embedding_norm": True},
    "rotary": {**_BARE, **_SHARED, "positions": "rotary", "pooling": "mean", "gated": True},
}

every_language_model = pytest.mark.parametrize("name", LANGUAGE_MODELS)
every_text_encoder = pytest.mark.parametrize("name", TEXT_ENCODERS)
every_image_model = pytest.mark.parametrize("name", IMAGE_MODELS)


def language_config(name: str = "paper", **changes: object) -> ModelConfig:
    return small_config(**{"num_encoder_layers": 0, **LANGUAGE_MODELS[name], **changes})


def text_config(name: str = "bert", **changes: object) -> ModelConfig:
    return small_config(**{"num_decoder_layers": 0, "num_classes": 5, **TEXT_ENCODERS[name], **changes})


def image_config(name: str = "vit", **changes: object) -> ModelConfig:
    return small_config(
        **{
            "vocab_size": None,
            "num_decoder_layers": 0,
            "num_classes": 5,
            "patches": PATCHES,
            **IMAGE_MODELS[name],
            **changes,
        }
    )
