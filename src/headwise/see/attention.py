"""What every head of anybody's model looks at: collected in one pass, shown as text, page or picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.doctor.adapt import adapt
from headwise.doctor.subject import KINDS, Kind, Layout, Subject
from headwise.errors import ConfigError
from headwise.files import write_text_atomically
from headwise.see.heads_told import told
from headwise.see.one_row import RowPass, pass_over
from headwise.see.stacking import stacks_of
from headwise.see.stacks import Layer, Stack
from headwise.see.token_names import Names, TokenNames

ENDINGS = (".html", ".png", ".svg")


@dataclass(frozen=True, eq=False, repr=False)
class Attention:
    """The attention of one pass over one row. notes: what was taken for granted, and what to keep in mind."""

    stacks: tuple[Stack, ...]
    title: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        shown = ", ".join(f"{stack.kind} {len(stack.layers)} layers" for stack in self.stacks)
        return f"<{self.title}: {shown}>"

    def to_text(self) -> str:
        """A table a stack: how spread each head's weights are, which have collapsed, and their lines."""
        return told(self.title, self.stacks, self.notes)

    def to_html(self) -> str:
        """A page of its own, that needs no network."""
        from headwise.see.attention_page import to_html

        return to_html(self)

    def _repr_html_(self) -> str:
        from headwise.see.attention_page import fragment

        return fragment(self)

    def save(self, path: str | Path) -> str | None:
        """Write a page (.html) or a picture (.png, .svg).

        Returns one line for the user when no installed font has a label's characters, else None.
        Errors: ConfigError for another ending; MissingExtra for a picture without matplotlib; StorageError.
        """
        path = Path(path)
        check_ending(path)
        if path.suffix.lower() == ".html":
            write_text_atomically(path, self.to_html())
            return None
        from headwise.see.maps import draw_attention

        drawing = draw_attention(self.stacks, self.title)
        drawing.save(path)
        return drawing.notice


def check_ending(path: Path) -> None:
    """Refuse what is neither a page nor a picture. Errors: ConfigError naming the endings."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(
            f"the file must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}: got {path.name or 'nothing'}; "
            f"{path.with_suffix('.html') if path.name else 'attention.html'} would do"
        )


def attention(
    model: Any,
    inputs: Any,
    *,
    row: int = 0,
    tokens: Names | None = None,
    source_tokens: Names | None = None,
    kind: Kind | None = None,
    pad_id: int | None = None,
    call: Callable[..., Any] | None = None,
    layout: Layout | None = None,
    device: str | None = None,
) -> Attention:
    """What every head looks at while the model reads one row of a batch, whatever kernel it uses.

    model, inputs, kind, pad_id, call, layout: as `examine` takes them. row: of the batch.
    tokens: names of the row's positions (the target's of an encoder-decoder), or what makes them of ids, such
    as tokenizer.convert_ids_to_tokens; left out, the ids. source_tokens: of the source; left out, what makes
    the names of `tokens` makes these too.
    One pass, without gradients, dropout off, in the model's own precision; the model comes back as it was.
    Laws: the weights are those of the pass itself, as fused kernels would have them; what a mask hides is
    told from what got no weight.
    Errors: ConfigError where the model cannot be called, has no such row, or no attention.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}: got {kind!r}")
    subject = Subject(model, inputs, call=call, kind=kind, pad_id=pad_id, layout=layout)
    return attention_of(subject, row=row, tokens=tokens, source_tokens=source_tokens, device=device)


def attention_of(
    subject: Subject,
    *,
    row: int = 0,
    tokens: Names | None = None,
    source_tokens: Names | None = None,
    device: str | None = None,
    title: str = "",
) -> Attention:
    """The same of a subject, as a file or a run gives it."""
    adapted = adapt(subject)
    found = pass_over(adapted, row, device)
    names = TokenNames(found, tokens, source_tokens)
    stacks = stacks_of(found, names)
    names.check()
    shown = title or f"Attention of {subject.name or type(adapted.model).__name__}, row {row} of the batch"
    return Attention(stacks, shown, (*adapted.notes, *found.notes, *_notes(stacks, found)))


def _notes(stacks: tuple[Stack, ...], found: RowPass) -> tuple[str, ...]:
    notes: list[str] = []
    kinds = [stack.kind for stack in stacks]
    if len(set(kinds)) < len(kinds):
        notes.append(
            "attentions of one kind over other tokens (another input, windows, merged patches) stand apart"
        )
    if not all(each.is_whole for each in found.maps):
        notes.append("where windows and heads could not be told apart, each window counts as a head")
    nowhere = sum(int((~layer.keep.any(-1)).any(0).sum()) for stack in stacks for layer in stack.layers[:1])
    if nowhere:
        notes.append(
            f"{nowhere} quer{'y' if nowhere == 1 else 'ies'} of the first layers may look nowhere, or do not "
            "ask: shown without weights, whatever the model gives there"
        )
    if any(_sums_to_other(layer) for stack in stacks for layer in stack.layers):
        notes.append(
            "the weights of some queries do not sum to 1: a sink beside the keys takes a part, or the "
            "softmax runs along another axis; headwise doctor tells which"
        )
    if any(bool(layer.weights.isnan().any()) for stack in stacks for layer in stack.layers):
        notes.append("some weights are NaN; headwise doctor names the first operation that gives them")
    return tuple(notes)


def _sums_to_other(layer: Layer) -> bool:
    total = layer.weights.sum(-1)[layer.keep.any(-1).expand(layer.weights.shape[:2])]
    return bool(((total - 1).abs() > 0.02).any())
