"""Write docs/checkpoints.md: which public checkpoints load, and how near they come to transformers.

    python docs/make_checkpoints.py [--check]

Every configuration of tests/checkpoint/foreign/agreement.py is built by transformers with random weights,
saved, loaded and compared, in float32 and in float64: ten seconds. --check measures as well but writes
nothing: it fails where the page would have other words, or where a difference passes what the tests allow.
The digits of a difference depend on the processor and are not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # sums in the same order on every machine
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402

from checkpoint.foreign.agreement import CASES, TOLERANCE, Case, measure  # noqa: E402
from headwise.checkpoint.foreign.layout import layouts  # noqa: E402

PAGE = ROOT / "docs" / "checkpoints.md"
FAMILIES = {
    "gpt2": "GPT-2",
    "llama": "LLaMA",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "bert": "BERT, MiniLM",
    "roberta": "RoBERTa",
    "distilbert": "DistilBERT",
    "vit": "ViT",
    "t5": "T5",
    "marian": "Marian",
    "bart": "BART",
}
_FIGURE = re.compile(r"\b\d\.\de-\d\d\b|(?<=\| )0(?= \|)")

SNIPPET = """\
from headwise import load
from headwise.data.padding import pad_rows

bert = load("PATH/TO/all-MiniLM-L6-v2")  # or, from the hub, "sentence-transformers/all-MiniLM-L6-v2"
sentences = ["A man is eating food.", "Somebody is having a meal.", "The stock market fell on Monday."]
ids = bert.tokenizer.encode(sentences, framed=True)
vectors = bert.model.sentence_vectors(pad_rows(ids, bert.tokenizer.pad_id))
print((vectors @ vectors.T).detach().numpy().round(2))
"""
OUTPUT = """\
[[ 1.    0.67 -0.01]
 [ 0.67  1.   -0.07]
 [-0.01 -0.07  1.  ]]
"""

_TOP = """
<!-- Written by docs/make_checkpoints.py: change it or tests/checkpoint/foreign/agreement.py, not this. -->

# Public checkpoints

`headwise.load` reads a directory as the transformers library writes it: `config.json`, `*.safetensors`
(one file, or parts with an index) and, for text, `tokenizer.json`. It returns a model of ours in evaluation
mode, in the precision of its file, with its tokenizer. `headwise.save(model, path, layout="gpt2")` is the way
back: `from_pretrained` of transformers loads what it wrote and computes the same. transformers itself is
needed for neither.

A trained sentence encoder, and which two of three sentences mean the same:

```python
{snippet}```

```
{output}```

A name that is no directory is fetched from the Hugging Face hub, with `pip install 'headwise[hub]'`.

What `load` returns also knows the names of a classifier's `classes`, the `end_ids` at which
`decode.sample.generate` stops, and the `marks` with which `greedy` writes an encoder-decoder's answer:

```python
from headwise import greedy, load
from headwise.data.padding import pad_rows

t5 = load("google-t5/t5-small")
ids = t5.tokenizer.encode(["translate English to German: The house is small."], framed=True)
print(t5.tokenizer.decode(greedy(t5.model, pad_rows(ids, t5.pad_id), t5.marks, 64)))
```

`save` takes what `load` returned, too, and writes all of that again. A tokenizer of ours goes along in a form
in which AutoTokenizer gives the same ids, except in a qwen2 directory, where a warning names the class that
does.

## What loads, and how near it comes

The largest difference of any logit (of the last vectors, for a body without a head) from what transformers
computes, over texts of different lengths with padding behind and in front. Weights are random and large
enough for every part to be seen; the tests show that exchanged matrices, tables shifted by one row, another
activation and another scale are each told apart. The float64 column has the parts that transformers always
takes in float32 (RMSNorm, softmax, rotary angles) lifted to float64. The tests allow {float32:.0e} and
{float64:.0e}. Greedy continuations are the same for 64 tokens.

| family | their class | ours | tried | float32 | float64 |
| --- | --- | --- | --- | --- | --- |
"""

_BOTTOM = """
`layout` is transformers' model_type: {names}.

## What does not load

- **Weights that are pickled** (`pytorch_model.bin`): reading them runs what their author wrote. Convert them
  where you trust them, with `save_pretrained(..., safe_serialization=True)`.
- **A setting that we do not compute**: `scale_attn_by_inverse_layer_idx` of GPT-2, relative keys in BERT,
  rotary scaling of other kinds than linear, yarn and llama3, windows in some layers only, decoders with other
  widths than their encoders, quantized weights. The message names the setting, what was expected and what
  came.
- **Tensors that do not fit**, or that are neither float32, float64, float16 nor bfloat16: all of them are
  listed, with their names and both shapes, and nothing is loaded. NaN and infinite numbers are loaded, with a
  warning that names the tensors.
- **A tokenizer in other files** than tokenizer.json (Marian's `*.spm`): the model loads without one.
- **Other heads**: decoder-only classifiers, taggers, answers marked in a text; ViT without a classifier.

Dropout differs while training where a family has more kinds of it than we do (GPT-2's on the embeddings);
what is computed in evaluation does not.
"""


def row(architecture: str, cases: Sequence[Case], figures: dict[torch.dtype, float] | None) -> str:
    """One class of theirs, all of its configurations."""
    layout = layouts()[cases[0].layout]
    tried = "; ".join(case.words for case in cases)
    told = [_told(None if figures is None else figures[dtype]) for dtype in TOLERANCE]
    kind = layout.heads[architecture].__name__
    return f"| {FAMILIES[layout.name]} | `{architecture}` | `{kind}` | {tried} | {' | '.join(told)} |"


def _told(figure: float | None) -> str:
    return "" if figure is None else "0" if figure == 0 else f"{figure:.1e}"


def page(rows: Sequence[str]) -> str:
    """The whole page."""
    top = _TOP.format(
        snippet=SNIPPET, output=OUTPUT, **{str(d).removeprefix("torch."): t for d, t in TOLERANCE.items()}
    )
    return top.lstrip("\n") + "\n".join(rows) + "\n" + _BOTTOM.format(names=", ".join(layouts()))


def without_figures(text: str) -> str:
    """The page but for what was measured."""
    return _FIGURE.sub("", text)


def grouped() -> dict[str, list[Case]]:
    """The configurations of each class, families in the order of this file."""
    order = list(FAMILIES)
    found: dict[str, list[Case]] = {}
    for case in sorted(CASES, key=lambda case: order.index(case.layout)):
        found.setdefault(case.architecture, []).append(case)
    return found


def measured(cases: Sequence[Case]) -> dict[torch.dtype, float]:
    """The largest difference of any of them."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            dtype: max(measure(case, Path(folder) / str(n), dtype) for n, case in enumerate(cases))
            for dtype in TOLERANCE
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it; 1 where it differs, or where a model does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not so")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows, failed = list[str](), list[str]()
    for architecture, cases in grouped().items():
        figures = measured(cases)
        rows.append(row(architecture, cases, figures))
        failed += [
            f"{architecture}: off by {figure:.1e} in {dtype}, more than {TOLERANCE[dtype]:.0e}"
            for dtype, figure in figures.items()
            if figure > TOLERANCE[dtype]
        ]
    text = page(rows)
    held = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if options.check and without_figures(held) != without_figures(text):
        failed.append(f"{PAGE.name} is not what would be written; run python docs/make_checkpoints.py")
    elif not options.check and not failed:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
