"""Two corpora out of Babel's locale data to classify; TF-IDF with logistic regression, and headwise.

    python benchmarks/labelled.py FOLDER --write languages     # train.csv, validation.csv, test.csv
    headwise train recipes/languages.yaml --data.labelled.folder FOLDER
    python benchmarks/labelled.py FOLDER --run runs/languages

and the same with same-value and recipes/same_value.yaml.

languages: which of 34 languages is this name in? The names of territories, languages, currencies, scripts,
units, time zones, months and days as the Unicode locale data (CLDR) have them in languages of Latin
letters. A name that two languages share is left out, and so is what stands in no letters. Things (France,
the euro, Monday) are drawn apart, not names: what is in the test part was in no language in the training
part.

same-value: does the German text say what the English one says? Dates, times, numbers, money and percentages
of the demo's corpus; where it does not, the German text is that of another value of the same form, so that
only digits differ. No value of the test part is in the training part.

With --run the test part is measured: TF-IDF with logistic regression over words, the same over runs of 1 to
5 letters, and the trained run.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from babel import Locale

from headwise.config import DatesConfig
from headwise.data.dates import make_dates
from headwise.data.pairs import Pairs

LANGUAGES = [
    "af",
    "az",
    "ca",
    "cs",
    "cy",
    "da",
    "de",
    "en",
    "es",
    "et",
    "eu",
    "fi",
    "fr",
    "ga",
    "gl",
    "hr",
    "hu",
    "id",
    "is",
    "it",
    "lt",
    "lv",
    "ms",
    "nb",
    "nl",
    "pl",
    "pt",
    "ro",
    "sk",
    "sl",
    "sq",
    "sv",
    "tr",
    "vi",
]


def names(language: str) -> Iterator[tuple[str, str]]:
    """(thing, its name): every name of a thing that CLDR has in this language."""
    locale = Locale.parse(language)
    tables: dict[str, Any] = {
        "territory": locale.territories,
        "language": locale.languages,
        "script": locale.scripts,
        "currency": locale.currencies,
        "variant": locale.variants,
    }
    for kind, table in tables.items():
        for key, name in table.items():
            yield f"{kind} {key}", str(name)
    for key, zone in locale.time_zones.items():
        if "city" in zone:
            yield f"zone {key}", str(zone["city"])
    for key, zone in locale.meta_zones.items():
        for name in zone.get("long", {}).values():
            yield f"meta {key}", str(name)
    for kind, table in (("month", locale.months), ("day", locale.days)):
        for key, name in table["format"]["wide"].items():
            yield f"{kind} {key}", str(name)
    for key, forms in locale.unit_display_names.items():
        if "long" in forms:
            yield f"unit {key}", str(forms["long"])


def part_of(thing: str) -> str:
    """Drawn by a checksum of the thing: the same in every language, on every machine."""
    number = hashlib.sha256(thing.encode()).digest()[0]
    return "test" if number < 38 else "validation" if number < 64 else "train"


def languages() -> dict[str, set[tuple[str, str]]]:
    """Names and their languages, by part."""
    owners: dict[str, set[str]] = defaultdict(set)
    found: list[tuple[str, str, str]] = []
    for language in LANGUAGES:
        for thing, name in names(language):
            text = " ".join(name.split())
            if any(c.isalpha() for c in text):
                owners[text.casefold()].add(language)
                found.append((part_of(thing), text, language))
    return {
        part: {(text, own) for p, text, own in found if p == part and len(owners[text.casefold()]) == 1}
        for part in PARTS
    }


def same_value() -> dict[str, set[tuple[str, str]]]:
    """Pairs of texts and whether they say the same, by part."""
    parts = make_dates(
        DatesConfig(languages=("de",), train_size=60_000, validation_size=2_000, test_size=6_000)
    )
    order = np.random.default_rng(1)
    return {part: set(matched(pairs, order)) for part, pairs in zip(PARTS, parts, strict=True)}


def matched(pairs: Pairs, order: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Half of the pairs as they are, half with the target of a neighbour of the same form."""
    forms: dict[str, list[int]] = defaultdict(list)
    for row, target in enumerate(pairs.target):
        forms[re.sub(r"[0-9]", "0", target)].append(row)
    for rows in forms.values():
        for place, row in enumerate(order.permutation(rows)):
            source, other = pairs.source[row].partition(" ")[2], pairs.target[rows[place]]
            is_same = place % 2 == 0
            if not is_same and other == pairs.target[row]:
                continue
            yield f"{source} = {pairs.target[row] if is_same else other}", "same" if is_same else "other"


PARTS = ("train", "validation", "test")
CORPORA = {"languages": languages, "same-value": same_value}


def write(folder: Path, corpus: str) -> None:
    """Write the three files, and say how many texts each has."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in CORPORA[corpus]().items():
        with (folder / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("text", "label"))
            writer.writerows(sorted(rows))
        print(f"{folder / part}.csv: {len(rows):,} texts in {len({label for _, label in rows})} classes")


def read(path: Path) -> tuple[list[str], list[str]]:
    """Texts and labels."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def measure(folder: Path, run: Path | None) -> None:
    """Print the test accuracy and macro-F1 of the baselines and of the run."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score

    texts, labels = read(folder / "train.csv")
    more = read(folder / "validation.csv")  # the baselines have nothing to stop early: they may learn from it
    test, truth = read(folder / "test.csv")
    largest = max(map(truth.count, set(truth))) / len(truth)
    print(f"test: {len(test):,} texts, {largest:.1%} of the most frequent class")
    baselines = {
        "TF-IDF of words + logistic regression": {"sublinear_tf": True},
        "TF-IDF of 1 to 5 letters + logistic regression": {
            "analyzer": "char_wb",
            "ngram_range": (1, 5),
            "sublinear_tf": True,
        },
    }
    for name, options in baselines.items():
        vectorizer = TfidfVectorizer(**options)
        model = LogisticRegression(C=30, max_iter=300)
        model.fit(vectorizer.fit_transform(texts + more[0]), labels + more[1])
        named = model.predict(vectorizer.transform(test))
        print(
            f"{name:<48} accuracy {accuracy_score(truth, named):.2%}  "
            f"macro-F1 {f1_score(truth, named, average='macro'):.2%}"
        )
    if run is None:
        return
    from headwise.checkpoint.run import TextRun, load_run
    from headwise.decode.classify import TextNamer
    from headwise.model.text_encoder import TextClassifier

    loaded = load_run(run)
    assert isinstance(loaded, TextRun) and isinstance(loaded.model, TextClassifier), f"{run} names no classes"
    namer = TextNamer(loaded.model, loaded.tokenizer, loaded.config.data.labelled.max_length)
    named = [loaded.classes[found.place] if found else "" for found in namer.stream(test)]
    print(
        f"{f'headwise, {run}':<48} accuracy {accuracy_score(truth, named):.2%}  "
        f"macro-F1 {f1_score(truth, named, average='macro'):.2%}"
    )


def main() -> None:
    """Write the corpus, or measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", choices=sorted(CORPORA), help="write this corpus there")
    parser.add_argument("--run", type=Path, help="a run of the corpus's recipe to measure")
    given = parser.parse_args()
    if given.write:
        write(given.folder, given.write)
    else:
        measure(given.folder, given.run)


if __name__ == "__main__":
    main()
