"""Images: the encoder over patches, as in ViT."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model.dropout import Dropout
from headwise.model.embed import PatchEmbedding
from headwise.model.encoder import Encoder
from headwise.model.init import initialise


class ImageClassifier(nn.Module):
    """Patches in, a class for each image out.

    An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale, section 3.1
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.num_encoder_layers < 1 or config.num_decoder_layers > 0:
            raise ConfigError(
                "an image classifier has encoder layers alone: got num_encoder_layers="
                f"{config.num_encoder_layers}, num_decoder_layers={config.num_decoder_layers}; "
                "set num_decoder_layers=0 and num_encoder_layers to 1 or more"
            )
        self.config = config
        self.embedding = PatchEmbedding(config)
        self.encoder = Encoder(config)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.d_model, config.classes_told_apart)
        initialise(self, config)

    def forward(
        self, images: Float[Tensor, "B channels height width"], maps: list[Tensor] | None = None
    ) -> Float[Tensor, "B C"]:
        """Logits of the classes."""
        hidden = self.encoder(self.embedding(images), maps=maps)  # [B, T, D]
        whole = hidden.mean(1) if self.config.pooling == "mean" else hidden[:, 0]  # [B, D]
        return self.output(self.dropout(whole))  # [B, C]
