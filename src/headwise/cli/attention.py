"""headwise attention MODEL: what each head looks at, as a page to explore or as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output
from headwise.cli.using import check_run, warn
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.see.attention import Attention

ENDINGS = (".html", ".png", ".svg")
SECONDS = 60.0


def attention(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = _parser()
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    output = Path(_checked_output(given.get("output", "attention.html")))
    what = _what(given["model"])
    _check(given, what)
    if what == "run":
        check_run(Path(given["model"]))
    if output.suffix.lower() != ".html":
        from headwise.see.fonts import require_matplotlib

        require_matplotlib("drawing attention")
    answer, found = (None, _of_file(given)) if what == "file" else _of_folder(given, what)
    chosen, named = _chosen(found, given.get("kind"), output)
    notice = chosen.save(output)
    if notice:
        warn(notice)
    if answer is not None:
        print(answer)
    from headwise.see.heads_told import summary

    for line in summary(chosen.stacks):
        print(line)
    for note in chosen.notes:
        print(f"Note: {note}")
    print(f"{named}: {output}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "attention",
        "MODEL [--source TEXT] [--target TEXT] [-o FILE] [--kind KIND] ...",
        "Show what every head of a model looks at while it reads one text: a page without network, to "
        "explore in a browser, or a picture. Heads that have collapsed (uniform, one-hot, dead) are named. A "
        "model.py is executed, as headwise doctor does it: give only files that you trust.",
    )
    parser.add_place(
        "MODEL",
        "directory that headwise train made, or of a public checkpoint; or model.py, model.py:name, "
        "package.module:name with its own inputs",
    )
    parser.add_option(
        "source",
        str,
        "the text to read; for a run of pictures a file, or the number of a picture of its test part",
        "TEXT",
    )
    parser.add_option("target", str, "the translation to write (default: the model's own, greedy)", "TEXT")
    parser.add_option(
        "output", str, ".html, .png or .svg to write (default attention.html)", "FILE", short="o"
    )
    parser.add_option(
        "kind",
        Literal["cross", "encoder", "decoder", "self"],
        "cross: target to source; encoder, decoder, self: each to itself (default: all on a page; in a "
        "picture cross, where there is one)",
        "{cross,encoder,decoder,self}",
    )
    parser.add_option("row", int, "which row of the inputs that model.py brings (default 0)", "N")
    parser.add_option("device", str, "where the model runs (default: where it is)", "NAME")
    parser.add_option(
        "load-timeout", float, f"most seconds for loading model.py (default {SECONDS:g})", "SECONDS"
    )
    return parser


def _checked_output(name: str) -> str:
    """Errors: ConfigError for another ending; StorageError for what cannot be written."""
    path = Path(name)
    if path.suffix.lower() not in ENDINGS:
        better = path.with_suffix(".html") if path.name else "attention.html"
        raise ConfigError(
            f"--output must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}: got {name or 'nothing'}; "
            f"{better} would do"
        )
    check_output(name)
    return name


def _what(model: str) -> Literal["run", "checkpoint", "file"]:
    path = Path(model)
    if path.is_dir():
        is_public = (path / "config.json").exists() and not (path / "config.yaml").exists()
        return "checkpoint" if is_public else "run"
    # a name that is neither there nor a module's was meant for a run
    return "file" if path.is_file() or path.suffix == ".py" or ":" in model or "." in path.name else "run"


def _check(given: Mapping[str, Any], what: str) -> None:
    """Refuse what does not go together before a model is loaded."""
    if what == "file":
        for name in ("source", "target"):
            if name in given:
                raise ConfigError(
                    f"--{name} is for runs and checkpoints: {given['model']} brings its own inputs; leave it "
                    "out, --row chooses among them"
                )
    else:
        if "source" not in given:
            raise ConfigError("--source must be given (see headwise attention --help)")
        for name in ("row", "load-timeout"):
            if name in given:
                raise ConfigError(f"--{name} is for a model.py: {given['model']} is none; leave it out")
    seconds = given.get("load-timeout", SECONDS)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ConfigError(f"--load-timeout must be above 0 seconds: got {seconds:g}; {SECONDS:g} is usual")
    if given.get("row", 0) < 0:
        raise ConfigError(f"--row must be at least 0: got {given['row']}; 0 is the first")


def _of_file(given: Mapping[str, Any]) -> Attention:
    from headwise.doctor.available import check_device
    from headwise.doctor.load import load
    from headwise.see.attention import attention_of

    if given.get("device") is not None:
        check_device(given["device"], "--device")
    loaded = load(given["model"], seconds=given.get("load-timeout", SECONDS))
    with loaded.running():
        found = attention_of(loaded.subject, row=given.get("row", 0), device=given.get("device"))
    return replace(found, notes=(*loaded.notes, *found.notes))


def _of_folder(given: Mapping[str, Any], what: str) -> tuple[str | None, Attention]:
    from headwise.see.run_reading import read_checkpoint, read_run

    source, target = given["source"], given.get("target")
    if what == "checkpoint":
        from headwise.checkpoint.foreign.load import load

        pretrained = load(given["model"])
        _move(pretrained.model, given.get("device"))
        reading = read_checkpoint(pretrained, source, target)
        return reading.answer, reading.attention
    from headwise.checkpoint.run import load_run

    run = load_run(given["model"])
    _move(run.model, given.get("device"))
    reading = read_run(run, source, target)
    return reading.answer, reading.attention


def _move(model: Any, device: str | None) -> None:
    if device is not None:
        from headwise.doctor.available import check_device

        check_device(device, "--device")
        model.to(device)


def _chosen(found: Attention, kind: str | None, output: Path) -> tuple[Attention, str]:
    """What goes to the file, and what to call it.

    Errors: ConfigError for a kind that the model has not.
    """
    there = list(dict.fromkeys(stack.kind for stack in found.stacks))
    if kind is not None and kind not in there:
        raise ConfigError(f"--kind must be one that the model has, {' or '.join(there)}: got {kind}")
    if kind is None:
        if output.suffix.lower() == ".html":
            return found, "attention"
        kind = "cross" if "cross" in there else None
    if kind is None:
        return found, "attention"
    return replace(found, stacks=tuple(s for s in found.stacks if s.kind == kind)), f"{kind} attention"
