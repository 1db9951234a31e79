"""What every head of anybody's model looks at: collected in one pass, shown as text, page or picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.doctor.adapt import adapt
from headwise.doctor.places import place
from headwise.doctor.sites import Site
from headwise.doctor.subject import KINDS, Kind, Layout, Subject
from headwise.errors import ConfigError
from headwise.files import write_text_atomically
from headwise.see.cut_heads import cut_across_time
from headwise.see.heads_told import told
from headwise.see.one_row import Map, RowPass, check_row, pass_over
from headwise.see.stacking import kinds_of, stacks_of
from headwise.see.stacks import Stack
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
    tokens: names of the row's positions, or what makes them of ids, such as tokenizer.convert_ids_to_tokens;
    left out, the ids. Of two inputs they name the one that asks (a cross-attention's queries come from it, an
    encoder-decoder's target), source_tokens the one that is read; where neither reads the other,
    source_tokens name the first. What makes the names of `tokens` makes those of the source too, if left out.
    Names follow their ids where the model shifts or permutes them before it looks them up.
    One pass, without gradients, dropout off, in the model's own precision; the model comes back as it was.
    Laws: the weights are those that are mixed with the values, as fused kernels would have them; only what
    got no weight is called masked.
    Errors: ConfigError where the model cannot be called, has no such row or device, or no attention.
    """
    check_row(row)
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
    kinds = kinds_of(found)
    names = TokenNames(found, tokens, source_tokens, kinds.asks, kinds.answers)
    stacks = stacks_of(found, kinds, names)
    names.check()
    cut = cut_across_time(found.record, [each.site for each in found.maps])
    if cut:
        stacks = tuple(_numbered(stack) for stack in stacks)
    shown = title or f"Attention of {subject.name or type(adapted.model).__name__}, row {row} of the batch"
    told = () if cut else names.notes
    notes = (*adapted.notes, *found.notes, *told, *_faults(cut, found), *_notes(stacks, found))
    return Attention(stacks, shown, notes)


def _numbered(stack: Stack) -> Stack:
    queries, keys = (tuple(f"#{n}" for n in range(len(names))) for names in (stack.queries, stack.keys))
    return replace(stack, queries=queries, keys=keys)


def _faults(cut: Sequence[Site], found: RowPass) -> Iterator[str]:
    """What makes a map say something else than it seems to."""
    if cut:
        yield (
            f"heads are cut across time in {len(cut)} of {len(found.maps)} attentions: a row here is pieces "
            "of "
            "several tokens, so that rows have numbers and no names; headwise doctor names the line (HW204)"
        )
    blind = [each.site for each in found.maps if each.site.shape[2] > 1 and bool(each.site.hidden.all())]
    if blind:
        where = blind[0].place
        at = f", first at {place(where.file, where.line)}" if where else ""
        yield (
            f"in {len(blind)} of {len(found.maps)} attentions the mask hides every key from every query{at}: "
            "it is "
            "inverted, or calls everything padding (HW105)"
        )


def _notes(stacks: tuple[Stack, ...], found: RowPass) -> tuple[str, ...]:
    notes: list[str] = []
    kinds = [stack.kind for stack in stacks]
    if len(set(kinds)) < len(kinds):
        notes.append(
            "attentions of one kind stand apart where they look at other tokens (another input, windows, "
            "merged patches) or do not read one another (towers side by side)"
        )
    if not all(each.is_whole for each in found.maps):
        notes.append("where windows and heads could not be told apart, each window counts as a head")
    nowhere = sum(int((~layer.keep.any(-1)).any(0).sum()) for stack in stacks for layer in stack.layers[:1])
    if nowhere:
        notes.append(
            f"{nowhere} quer{'y' if nowhere == 1 else 'ies'} of the first layers may look nowhere, or do not "
            "ask: shown without weights, whatever the model gives there"
        )
    changed = dict.fromkeys(
        place(each.changed.file, each.changed.line) for each in found.maps if each.changed
    )
    if changed:
        notes.append(
            f"the weights are changed after the softmax, at {', '.join(changed)}: shown is what is mixed"
        )
    if any(_sums_to_other(each) for each in found.maps if each.changed is None):
        notes.append(
            "the weights of some queries do not sum to 1: a sink beside the keys takes a part, or the "
            "softmax runs along another axis; headwise doctor tells which"
        )
    if any(bool(layer.weights.isnan().any()) for stack in stacks for layer in stack.layers):
        notes.append("some weights are NaN; headwise doctor names the first operation that gives them")
    return tuple(notes)


def _sums_to_other(each: Map) -> bool:
    total = each.weights.sum(-1)[each.keep.any(-1)]
    return bool(((total - 1).abs() > 0.02).any())
