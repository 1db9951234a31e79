"""headwise generate RUN: continue a text with a trained language model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output, lines_of, write_lines
from headwise.cli.using import check_run
from headwise.decode.sampling import Sampling
from headwise.errors import ConfigError, RunError

if TYPE_CHECKING:
    from headwise.decode.writer import Writer

MAX_NEW_TOKENS, TEMPERATURE = 200, 0.8


def generate(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "generate",
        "RUN [--prompt TEXT | --prompts FILE] [--max_new_tokens N] [--temperature T] ...",
        "Continue a text with a trained language model. A single answer appears as it is written.",
        "With --prompts, every line is a prompt and every answer a line; line ends in it are written \\n.",
    )
    parser.add_place("RUN", "directory that headwise train made")
    parser.add_option("prompt", str, "the text to continue (default: none)", "TEXT")
    parser.add_option("prompts", str, "file of prompts, one a line; - for standard input", "FILE")
    parser.add_option(
        "output", str, "file to write when all is written (default: standard output)", "FILE", short="o"
    )
    parser.add_option(
        "max_new_tokens", int, f"most tokens to write for each prompt (default {MAX_NEW_TOKENS})", "N"
    )
    parser.add_option(
        "temperature",
        float,
        f"below 1 the likely becomes likelier; 0 takes the most probable token (default {TEMPERATURE})",
        "T",
    )
    parser.add_option("top_k", int, "only the N most probable tokens (default: all)", "N")
    parser.add_option(
        "top_p", float, "only the most probable tokens that reach P together (default: all)", "P"
    )
    parser.add_option(
        "min_p", float, "only tokens at least P times as probable as the most probable (default: all)", "P"
    )
    parser.add_option(
        "repetition_penalty", float, "above 1, tokens of the text so far become less likely (default 1)", "X"
    )
    parser.add_texts(
        "stop",
        "a text that ends the answer and is not written; \\n is a line end; several: --stop again",
        "TEXT",
    )
    parser.add_option("seed", int, "of the lots drawn (default 0)", "N")
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    folder = Path(given["run"])
    if "prompt" in given and "prompts" in given:
        raise ConfigError("--prompt and --prompts exclude each other: give one of them")
    most, seed, sampling = _checked(given)
    output = given.get("output", "-")
    if output != "-":
        check_output(output)
    check_run(folder)
    if "prompts" in given:
        with lines_of(given["prompts"]) as lines:
            prompts = list(lines)
    else:
        prompts = [given.get("prompt", "")]
    writer, stop = _writer(folder), _stops(given)
    if "prompts" in given:
        answers = writer.write(prompts, most, sampling, seed=seed, stop=stop)
        write_lines(output, (answer.replace("\n", "\\n") for answer in answers))
    elif output != "-":
        (answer,) = writer.write(prompts, most, sampling, seed=seed, stop=stop)
        write_lines(output, [prompts[0] + answer])
    else:
        writer.encode(prompts[0])  # refused before anything is shown
        _show(0, prompts[0])
        writer.write(prompts, most, sampling, seed=seed, stop=stop, on_text=_show)
        _show(0, "\n")
    return 0


def _checked(given: dict[str, Any]) -> tuple[int, int, Sampling]:
    """How much, from which seed and how; refused, under the options' own names, before torch is loaded."""
    most, seed = given.get("max_new_tokens", MAX_NEW_TOKENS), given.get("seed", 0)
    if most < 1:
        raise ConfigError(f"--max_new_tokens must be at least 1: got {most}; {MAX_NEW_TOKENS} is the default")
    if seed < 0:
        raise ConfigError(f"--seed must be at least 0: got {seed}; 0 is the default")
    names = ("top_k", "top_p", "min_p", "repetition_penalty")
    asked = {name: given[name] for name in names if name in given}
    try:
        return most, seed, Sampling(temperature=given.get("temperature", TEMPERATURE), **asked)
    except ConfigError as error:
        raise ConfigError(f"--{error}") from None


def _writer(folder: Path) -> Writer:
    from headwise.checkpoint.run import TextRun, load_run
    from headwise.decode.writer import Writer
    from headwise.model.language_model import LanguageModel

    run = load_run(folder)
    if not isinstance(run, TextRun) or not isinstance(run.model, LanguageModel):
        raise RunError(
            f"{folder} does not continue text: it was trained on data.kind {run.config.data.kind} with "
            f"{run.config.model.num_encoder_layers} encoder layers; headwise generate takes a language model"
        )
    return Writer(run.model, run.tokenizer)


def _show(_: int, piece: str) -> None:
    sys.stdout.buffer.write(piece.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _stops(given: dict[str, Any]) -> list[str]:
    return [text.replace("\\n", "\n") for text in given["stop"] if text]
