"""Read the English of the `dates` corpus back, written apart from what writes it: the tests' oracle."""

from __future__ import annotations

import re
from datetime import date, time
from decimal import Decimal
from typing import NamedTuple

from headwise.data.date_values import Money, Percentage, Value

MONTHS = dict(
    zip(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
        range(1, 13),
        strict=True,
    )
)
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "CN¥": "CNY", "CA$": "CAD", "A$": "AUD"}
NAMES = {
    "US dollar": "USD",
    "euro": "EUR",
    "British pound": "GBP",
    "Japanese yen": "JPY",
    "Swiss franc": "CHF",
    "Chinese yuan": "CNY",
    "Canadian dollar": "CAD",
    "Australian dollar": "AUD",
}
PERCENT = r" ?%| (?:percent|per cent|pct|per hundred|in a hundred|out of 100)"
CODE = "USD|EUR|GBP|JPY|CHF|CNY|CAD|AUD"
SIGN = re.compile(r"\(|-|\u2212|\+|minus ?|negative ?|plus ?")
TIME = re.compile(r"(\d\d?)[:.h](\d\d)(?:[:.m](\d\d)s?)?|(\d\d)(\d\d)(?= hours)|(\d\d?)")


class Read(NamedTuple):
    value: Value
    names_weekday: bool


def read_english(text: str) -> Read:
    """The value of a text and whether it names the day of the week."""
    for read in (_date, _time, _number):
        found = read(text)
        if found is not None:
            return found
    raise AssertionError(f"no way to read {text!r}")


def _date(text: str) -> Read | None:
    weekday = next((n for n, day in enumerate(WEEKDAYS) if re.search(rf"\b{day}", text)), None)
    words = re.sub(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*|\bthe\b|\bof\b|[,().]", " ", text)
    words = re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", words).strip()
    if found := re.fullmatch(r"(\d{4})([-/])(\d\d)\2(\d\d)", words):
        year, month, day = int(found[1]), int(found[3]), int(found[4])
    elif found := re.fullmatch(r"(\d\d?)/(\d\d?)/(\d{4})", words):
        year, month, day = int(found[3]), int(found[1]), int(found[2])
    else:
        parts = re.split(r"[ -]+", words)
        names = [part for part in parts if part[:3] in MONTHS]
        numbers = [int(part) for part in parts if part.isdecimal()]
        if len(parts) != 3 or len(names) != 1 or len(numbers) != 2:
            return None
        (day, year), month = sorted(numbers), MONTHS[names[0][:3]]
    read = date(year, month, day)
    assert weekday in (None, read.weekday()), f"{text!r} names another day of the week"
    return Read(read, weekday is not None)


def _time(text: str) -> Read | None:
    half = re.search(r" ?(?<![A-Za-z])([AaPp])(\.?)[Mm]\2", text)
    if half is None and not text.endswith(" hours") and not re.match(r"\d\d?[:h]", text):
        return None
    words = text if half is None else text.replace(half[0], "")
    seconds = re.search(r"(?: and )?(\d+) seconds?(?: past )?", words)
    if seconds:
        words = words.replace(seconds[0], "")
    if past := re.fullmatch(r"(a quarter|half|\d+) past (\d+)", words):
        hour, minute = int(past[2]), {"a quarter": 15, "half": 30}.get(past[1]) or int(past[1])
        second = 0
    elif found := TIME.match(words):
        hour = int(found[1] or found[4] or found[6])
        minute, second = int(found[2] or found[5] or 0), int(found[3] or 0)
        assert words[found.end() :] in ("", " hours"), f"{text!r} ends in more than a time"
    else:
        return None
    if half is not None:
        assert 1 <= hour <= 12, f"{text!r} is no time of the 12-hour clock"
        hour = hour % 12 + 12 * (half[1] in "Pp")
    return Read(time(hour, minute, int(seconds[1]) if seconds else second), False)


def _number(text: str) -> Read:
    words, code, is_percentage = text, None, False
    if re.search(f"(?:{PERCENT})\\)?$", words):
        words, is_percentage = re.sub(f"(?:{PERCENT})", "", words), True
    for name in NAMES:
        if found := re.search(rf" {name}s?\b", words):
            words, code = words.replace(found[0], ""), NAMES[name]
    if found := re.search(rf" ?({CODE}) ?", words):
        words, code = words.replace(found[0], ""), found[1]
    for sign in sorted(SIGNS, key=len, reverse=True):
        if sign in words:
            words, code = words.replace(sign, ""), SIGNS[sign]
    is_negative = False
    if found := SIGN.match(words):
        is_negative = found[0].strip() in ("(", "-", "\u2212", "minus", "negative")
        words = words[found.end() :].removesuffix(")")
    digits = re.sub(r"[, ](?=\d{3})", "", words.replace(" point ", "."))
    assert re.fullmatch(r"\d+(\.\d+)?", digits), f"{text!r} is no number: {digits!r}"
    number = -Decimal(digits) if is_negative else Decimal(digits)
    if code is not None:
        return Read(Money(code, number), False)
    return Read(Percentage(number) if is_percentage else number, False)
