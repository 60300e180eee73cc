#!/usr/bin/env python3
"""Makes tests/goldens/llm/pre-tokenizers.json: how the regular expressions that tokenizers are published with cut texts, by the
regex module. The texts are those of the token goldens.

    make_pre_tokenizer_goldens.py tests/goldens/llm          (needs regex)

A row is a text and, for each rule, the sizes in bytes of its pieces.
"""
import json
import os
import sys

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
EXTRA = ["'S'T'RE i'Ll x'D", "a \n\n  \n b", "x\r\n\r\n  y", "  \t\n", "?!\n\nnext", " ?!\r\n", "12345 678901", "a\n\n\n   ", " \u3000\u00a0x", "\t\tx", "\n x", "a'b'c's'",
         "'", "''s", " 's", "\u00bd\u00b2\u0663 1", "e\u0301a", "  'tis  ", "日本 語\n\n。\n"]


def pieces(rule, text):
    found = [m.group() for m in regex.finditer(rule, text)]
    assert "".join(found) == text, (rule, text)
    return found


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with open(os.path.join(sys.argv[1], "smollm2-135m-tokens.json"), encoding="utf-8") as file:
        texts = [entry["text"] for entry in json.load(file)["entries"]] + EXTRA
    rows = []
    for text in texts:
        digits = [p for part in regex.split(r"(\p{N})", text) if part for p in pieces(GPT2, part)]
        cut = {"gpt-2": pieces(GPT2, text), "smollm": digits, "llama-bpe": pieces(LLAMA3, text), "qwen2": pieces(QWEN2, text)}
        rows.append([text, {name: [len(p.encode()) for p in found] for name, found in cut.items()}])
    with open(os.path.join(sys.argv[1], "pre-tokenizers.json"), "w", encoding="utf-8") as out:
        json.dump({"made_with": "regex " + regex.__version__, "rows": rows}, out, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
