#!/usr/bin/python3
"""Searches pages for the words of tests/lint/words: prints `page:line: "found": write ...` for each.

    words.py WORDS PAGE...
"""
import re
import sys


def blank(match):
    return re.sub(r"\S", "#", match[0])


def prose(text):
    """The page without code, comments and generated parts, its lines where they were."""
    for code in (r"^<!-- made by .*? begin.*?^<!-- made by .*? end", r"<!--.*?-->", r"^ *```.*?^ *```", r"(`+)[^`].*?\1", r"\]\([^)]*\)"):
        text = re.sub(code, blank, text, flags=re.S | re.M)
    return text


def main():
    rows = [line for line in open(sys.argv[1], encoding="utf-8").read().splitlines() if line and line[0] != "#"]
    unchecked = [row[1:].strip() for row in rows if row[0] == "-"]
    words = [row.replace(" ", r"\s+", row.split("\t")[0].count(" ")).split("\t") for row in rows if row[0] != "-"]
    any_word = re.compile(r"\b(?:" + "|".join(f"(?:{pattern})" for pattern, _ in words) + r")\b", re.I)   # one pass is faster
    for page in set(unchecked) - set(sys.argv[2:]):
        print(f"{sys.argv[1]}:1: {page} does not exist")
    for page in sys.argv[2:]:
        if page in unchecked:
            continue
        text = prose(open(page, encoding="utf-8").read())
        for found in any_word.finditer(text):
            instead = next(i for pattern, i in words if re.compile(rf"(?:{pattern})\b", re.I).match(text, found.start()))
            print(f'{page}:{text.count(chr(10), 0, found.start()) + 1}: "{" ".join(found[0].split())}": write: {instead}')


main()
