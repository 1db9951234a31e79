"""What a model looks at while it translates one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.data.padding import pad_sources
from headwise.data.tokenizer import Tokenizer
from headwise.decode.greedy import greedy
from headwise.decode.rules import default_limit, evaluating
from headwise.errors import DataError
from headwise.model.encoder_decoder import AttentionMaps, EncoderDecoder


@dataclass(frozen=True)
class Seen:
    """The maps of one kind, [H, Tq, Tk] a layer, with the names of the Tk tokens that are read, of the Tq
    tokens that read, and of the two axes.
    """

    maps: list[Tensor]
    read: list[str]
    reading: list[str]
    axes: tuple[str, str]


@dataclass(frozen=True)
class Reading:
    """A translation, with what every layer looked at while it was made.

    cross, decoder: row t is the moment when target token t was chosen, with those before it known.
    """

    translation: str
    cross: Seen
    encoder: Seen
    decoder: Seen


def read_sentence(model: EncoderDecoder, tokenizer: Tokenizer, text: str) -> Reading:
    """Translate one sentence greedily and keep what each head looked at.

    Law: the translation is that of a `Translator` with beam_size 1.
    Errors: DataError for a text without tokens, or with more than the model's max_length.
    """
    ids = tokenizer.encode([text])[0]
    reach = model.config.max_length - 1  # the end mark takes one
    if not 1 <= len(ids) <= reach:
        remedy = "shorten it, or train with a larger model.max_length" if ids else "give it words"
        raise DataError(f"the sentence must have between 1 and {reach} tokens: got {len(ids)}; {remedy}")
    device = next(model.parameters()).device
    source = pad_sources([ids], tokenizer).to(device)  # [1, Ts]
    limit = default_limit(model, source.size(1))
    written = greedy(model, source, tokenizer, limit)[0]
    # the end mark was chosen last, but for a translation that ran out of room
    chosen = written if len(written) == limit else [*written, tokenizer.eos_id]
    known = [tokenizer.bos_id, *chosen[:-1]]
    target = torch.tensor([known], device=device)  # [1, Tt]
    maps = AttentionMaps()
    with evaluating(model):
        model(source, target, maps)
    source_names = tokenizer.names([*ids, tokenizer.eos_id])
    known_names, chosen_names = tokenizer.names(known), tokenizer.names(chosen)
    read, write = "source: read", "target: written"

    def first(layers: list[Tensor]) -> list[Tensor]:
        return [weights[0] for weights in layers]  # each [H, Tq, Tk]

    return Reading(
        translation=tokenizer.decode([written])[0],
        cross=Seen(first(maps.cross), source_names, chosen_names, (read, write)),
        encoder=Seen(first(maps.encoder), source_names, source_names, (read, "source: reading")),
        decoder=Seen(first(maps.decoder), known_names, chosen_names, ("target: known", write)),
    )
