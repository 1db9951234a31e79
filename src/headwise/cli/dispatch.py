"""Find the command, run it, and turn what goes wrong into one line and an exit code.

0 done; 1 the doctor found something; 2 a mistake in the arguments, the recipe, the data, the run or
the model that the doctor was given; 130 stopped by Ctrl-C; 141 nobody reads the output any more.
Only a bug of ours shows a traceback; in the doctor it is one line and 2, as 1 would say that it found
something, and HEADWISE_TRACEBACK=1 shows the traceback.
"""

from __future__ import annotations

import difflib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from headwise.errors import HeadwiseError, Stopped

USAGE, STOPPED, BROKEN_PIPE = 2, 130, 141
TRACEBACK = "HEADWISE_TRACEBACK"  # the environment variable that asks for it

COMMANDS = {
    "demo": "train on dates, translate them, draw what the model looks at",
    "train": "train a model as a recipe says, or go on where training stopped",
    "translate": "translate lines of text",
    "generate": "continue a text with a trained language model",
    "classify": "name the class of texts or pictures",
    "evaluate": "score translations of a text: BLEU, chrF, exact match",
    "attention": "show what each head looks at, in a page or a picture",
    "trace": "the shapes of a pass step by step, with lines, memory and FLOPs",
    "draw": "draw a run's loss and learning rate, or its position encoding",
    "doctor": "name the known mistakes in a PyTorch Transformer, each at its line",
    "explain": "say what a check of the doctor looks for, why it matters and what to do",
}

HELP = f"""\
usage: headwise COMMAND ...

The Transformer of Attention Is All You Need: train it, translate, continue a text, name classes.

commands:
{chr(10).join(f"  {name:<11}{what}" for name, what in COMMANDS.items())}

  headwise COMMAND --help    what a command takes
  headwise --version

examples:
  headwise demo
  headwise train recipes/dates.yaml --model.d_model 64
  headwise translate runs/dates < source.txt > translation.txt
  headwise doctor my_model.py
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except Stopped as error:
        return _fail(str(error), STOPPED)
    except HeadwiseError as error:
        return _fail(str(error), USAGE)
    except KeyboardInterrupt:
        return _fail("stopped", STOPPED)
    except (BrokenPipeError, SystemExit):  # the second is how rich says the first
        _forget_stdout()
        return BROKEN_PIPE
    except OSError as error:
        about = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{about}", USAGE)
    except Exception as error:
        if _is_out_of_memory(error):
            return _fail(
                "not enough memory; make the model (model.d_model) or train.batch_tokens smaller", USAGE
            )
        if words[:1] not in (["doctor"], ["trace"], ["attention"]):
            raise
        return _fail(_bug(error), USAGE)


def _run(words: list[str]) -> int:
    strange = [word for word in words if not _is_text(word)]
    if strange:
        return _fail(
            f"arguments must be UTF-8: got {strange[0]!a}; rename the file or retype the text", USAGE
        )
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(HELP)
        return 0
    name, rest = words[0], words[1:]
    if name == "--version":
        from headwise import __version__

        print(f"headwise {__version__}")
        return 0
    command = _command(name)
    if command is None:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        kind = "option" if name.startswith("-") else "command"
        return _fail(f"unknown {kind} {name if len(name) <= 60 else name[:57] + '...'}; {hint}", USAGE)
    return command(rest)


def _command(name: str) -> Callable[[Sequence[str]], int] | None:
    """The command's function; only its own modules are imported."""
    match name:
        case "train":
            from headwise.cli.train import train as command
        case "translate":
            from headwise.cli.translate import translate as command
        case "generate":
            from headwise.cli.generate import generate as command
        case "classify":
            from headwise.cli.classify import classify as command
        case "evaluate":
            from headwise.cli.evaluate import evaluate as command
        case "attention":
            from headwise.cli.attention import attention as command
        case "trace":
            from headwise.cli.trace import trace as command
        case "draw":
            from headwise.cli.draw import draw as command
        case "doctor":
            from headwise.cli.doctor import doctor as command
        case "explain":
            from headwise.cli.explain import explain as command
        case "demo":
            from headwise.cli.demo import demo as command
        case _:
            return None
    return command


def _fail(message: str, code: int) -> int:
    """Say it in one line, whatever the message holds."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(message.split()))
    with suppress(OSError, ValueError):  # nobody is there to read it; the code says it
        print(f"headwise: {line}", file=sys.stderr, flush=True)
    return code


def _bug(error: Exception) -> str:
    """What to say of an exception that nobody foresaw; its traceback goes before where it is asked for."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    at = traceback.extract_tb(error.__traceback__)[-1]
    line = f"headwise failed, and should not have: {said[:300]}, at {at.filename}:{at.lineno}"
    if os.environ.get(TRACEBACK, "0") in ("", "0"):
        return f"{line}; set {TRACEBACK}=1 to see the traceback"
    with suppress(OSError, ValueError):  # as in _fail
        traceback.print_exception(error)
    return line


def _prepare_streams() -> None:
    """Give what was closed (>&-) a place to go, and let no terminal's encoding stop a message."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not stream:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 for as long as we live
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_text(word: str) -> bool:
    """Whether an argument was UTF-8: Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in word)


def _forget_stdout() -> None:
    """Point stdout at nothing, or Python complains again when it flushes at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_out_of_memory(error: BaseException) -> bool:
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    # torch says it as a RuntimeError on the CPU, and as its subclass OutOfMemoryError elsewhere
    said = str(error).lower()
    return any(
        words in said for words in ("can't allocate memory", "out of memory", "size calculation overflowed")
    )
