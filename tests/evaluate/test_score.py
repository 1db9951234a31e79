from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from collections import Counter

import pytest
import sacrebleu

from headwise.errors import ConfigError, DataError
from headwise.evaluate.score import TOKENIZERS, check_tokenizer, score

REFERENCES = [
    "A man in a red hat is standing in the snow.",
    "Two dogs run across the field.",
    "She said: it costs $1,000.50!",
]
HYPOTHESES = [
    "A man in a red hat stands in the snow.",
    "Two dogs run across the field.",
    "she said it costs $1,000.50.",
]


def plain_bleu(hypotheses: list[str], references: list[str]) -> float:
    """BLEU: a Method for Automatic Evaluation of Machine Translation, section 2.3, on words apart."""
    log_precision = 0.0
    for n in range(1, 5):
        matches = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            ours, theirs = hypothesis.split(), reference.split()
            grams = Counter(tuple(ours[i : i + n]) for i in range(len(ours) - n + 1))
            wanted = Counter(tuple(theirs[i : i + n]) for i in range(len(theirs) - n + 1))
            matches += sum((grams & wanted).values())
            total += sum(grams.values())
        log_precision += math.log(matches / total) / 4
    c = sum(len(h.split()) for h in hypotheses)
    r = sum(len(r.split()) for r in references)
    return 100 * math.exp(log_precision + min(0.0, 1 - r / c))


def test_equal_texts_have_full_marks_and_others_have_not() -> None:
    scores = score(REFERENCES, REFERENCES)
    assert (scores.bleu, scores.chrf) == pytest.approx((100, 100))
    assert (scores.exact, scores.count, scores.exact_share) == (3, 3, 1.0)
    scores = score(HYPOTHESES, REFERENCES)
    assert 0 < scores.bleu < 100 and 0 < scores.chrf < 100
    assert (scores.exact, scores.exact_share) == (1, pytest.approx(1 / 3))


def test_bleu_is_the_formula_of_the_paper() -> None:
    found = score(HYPOTHESES, REFERENCES, tokenize="none").bleu
    assert found == pytest.approx(plain_bleu(HYPOTHESES, REFERENCES), abs=1e-9)
    shorter = [h.rsplit(" ", 2)[0] for h in REFERENCES]  # the brevity penalty
    found = score(shorter, REFERENCES, tokenize="none").bleu
    assert found == pytest.approx(plain_bleu(shorter, REFERENCES), abs=1e-9)
    assert found < 90
    # words cut at punctuation give another number: it is really the 13a words that are the default
    assert abs(score(HYPOTHESES, REFERENCES).bleu - plain_bleu(HYPOTHESES, REFERENCES)) > 0.1
    # swapped, the precision would be the recall
    assert abs(score(REFERENCES, HYPOTHESES).bleu - score(HYPOTHESES, REFERENCES).bleu) > 0.01


def test_agrees_with_what_sacrebleu_computes_by_itself() -> None:
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_lines_carry_the_signatures() -> None:
    bleu, chrf, exact = score(HYPOTHESES, REFERENCES).lines()
    version = f"version:{sacrebleu.__version__}"
    assert bleu.startswith(f"BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version} = ")
    assert "BP = " in bleu and "hyp_len = " in bleu
    assert chrf.startswith(f"chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version} = ")
    assert exact == "exact match = 33.33 (1 of 3)"
    lowercase = score(HYPOTHESES, REFERENCES, lowercase=True, tokenize="zh").lines()
    assert "case:lc" in lowercase[0] and "tok:zh" in lowercase[0] and "case:lc" in lowercase[1]


def test_case_counts_unless_it_is_asked_not_to() -> None:
    loud = [text.upper() for text in REFERENCES]
    assert score(loud, REFERENCES).exact == 0
    assert score(loud, REFERENCES).bleu < 50
    quiet = score(loud, REFERENCES, lowercase=True)
    assert quiet.exact == 3
    assert (quiet.bleu, quiet.chrf) == pytest.approx((100, 100))


def test_chinese_has_no_spaces_and_needs_its_own_words() -> None:
    reference = ["二〇二四年三月五日星期二下午三点"]
    near = ["二〇二四年三月五日星期三下午三点"]
    assert score(near, reference, tokenize="zh").bleu > 50
    assert score(near, reference).bleu < 20  # one unbroken word, and it is wrong


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="got 2 translations and 3 references; give one reference for each"):
        score(HYPOTHESES[:2], REFERENCES)
    with pytest.raises(DataError, match="at least one translation to score: got none; give text"):
        score([], [])
    for refuse in (check_tokenizer, lambda name: score(HYPOTHESES, REFERENCES, tokenize=name)):
        with pytest.raises(ConfigError, match=r"tokenize must be one of 13a, intl, zh, .*: got 'klingon'"):
            refuse("klingon")


def test_every_tokenizer_of_the_list_works_or_says_what_is_missing() -> None:
    packages = {"ja-mecab": "MeCab", "ko-mecab": "mecab_ko"}
    for tokenize in TOKENIZERS:
        if tokenize in packages and importlib.util.find_spec(packages[tokenize]) is None:
            for refuse in (check_tokenizer, lambda name: score(REFERENCES, REFERENCES, tokenize=name)):
                with pytest.raises(ConfigError, match=f"pip install 'sacrebleu.{tokenize[:2]}.'"):
                    refuse(tokenize)
        else:
            check_tokenizer(tokenize)
            assert score(REFERENCES, REFERENCES, tokenize=tokenize).bleu == pytest.approx(100)


def test_an_empty_translation_is_counted_not_refused() -> None:
    scores = score(["", *REFERENCES[1:]], REFERENCES)
    assert scores.exact == 2 and 0 < scores.bleu < 100


def test_sacrebleu_is_loaded_with_the_first_score() -> None:
    code = "import sys, headwise.evaluate.score\nprint('sacrebleu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
