"""What an encoder-decoder looks at while it writes one answer, its own or a given one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from headwise.data.padding import Marks
from headwise.data.tokenizer import Tokenizer
from headwise.decode.greedy import greedy
from headwise.decode.rules import default_limit
from headwise.doctor.subject import Subject
from headwise.errors import DataError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.see.attention import Attention, attention_of
from headwise.see.stacks import Stack, StackKind

# Whose weights a row has is told by what is chosen with them: the token that comes next.
AXES: dict[StackKind, tuple[str, str]] = {
    "encoder": ("source: read", "source: reading"),
    "decoder": ("target: known", "target: written"),
    "cross": ("source: read", "target: written"),
}


@dataclass(frozen=True)
class Reading:
    """What a model said of a text, and what every layer looked at meanwhile.

    answer: the translation, or the class with its probability; None of a model that gives neither.
    attention: of an encoder-decoder row t of decoder and cross is the moment when target token t was chosen,
    with those before it known.
    """

    answer: str | None
    attention: Attention

    def stack(self, kind: StackKind) -> Stack:
        """The first stack of a kind. Errors: StopIteration where there is none."""
        return next(stack for stack in self.attention.stacks if stack.kind == kind)


def read_sentence(
    model: EncoderDecoder, tokenizer: Tokenizer, text: str, target: str | None = None
) -> Reading:
    """Translate one sentence greedily, or write the given target, and keep what each head looked at.

    Law: without a target the answer is that of a `Translator` with beam_size 1.
    Errors: DataError for a text without tokens, or with more than the model's max_length.
    """
    ids = tokenizer.encode([text])[0]
    check_length("the sentence", len(ids), model.config.max_length - 1)  # the end mark takes one
    given = None
    if target is not None:
        given = tokenizer.encode([target])[0]
        check_length("the target", len(given), model.config.max_length - 1)
    title = f"Attention while {'translating' if given is None else 'writing the given translation of'} {text}"
    source = [*ids, tokenizer.eos_id]
    written, found = read_pair(model, source, tokenizer, tokenizer.names, title, given)
    return Reading(tokenizer.decode([written])[0], found)


def check_length(what: str, length: int, most: int) -> None:
    """Errors: DataError for no token, and for more than the model takes."""
    if not 1 <= length <= most:
        remedy = "shorten it, or train with a larger model.max_length" if length else "give it words"
        raise DataError(f"{what} must have between 1 and {most} tokens: got {length}; {remedy}")


def read_pair(
    model: EncoderDecoder,
    source_ids: Sequence[int],
    marks: Marks,
    names: Callable[[Sequence[int]], list[str]],
    title: str,
    given: Sequence[int] | None = None,
) -> tuple[list[int], Attention]:
    """The ids of the answer without marks, and what was looked at while each was chosen.

    source_ids: as the encoder takes them, the end mark too. given: an answer to write instead of the model's.
    """
    device = next(model.parameters()).device
    source = torch.tensor([list(source_ids)], device=device)  # [1, Ts]
    limit = default_limit(model, source.size(1))
    written = greedy(model, source, marks, limit)[0] if given is None else list(given)
    # the end mark was chosen last, but for an answer that ran out of room
    is_cut = given is None and len(written) == limit
    chosen = written if is_cut else [*written, marks.eos_id]
    known = [marks.bos_id, *chosen[:-1]]
    target = torch.tensor([known], device=device)  # [1, Tt]
    subject = Subject(model, (source, target), kind="encoder-decoder", layout="batch-first")
    found = attention_of(subject, tokens=names(known), source_tokens=names(source_ids), title=title)
    written_names = tuple(names(chosen))

    def told(stack: Stack) -> Stack:
        queries = stack.queries if stack.kind == "encoder" else written_names
        return replace(stack, queries=queries, axes=AXES[stack.kind])

    return written, replace(found, stacks=tuple(map(told, found.stacks)))
