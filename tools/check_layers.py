#!/usr/bin/env python3
"""Checks that every file under src/ includes only the layers that src/layers.txt allows, and keeps the rules of the portable
layers (everything below cli): no threads or mutexes outside base/ and device/, no exceptions, no iostream, no std::format."""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FORBIDDEN = [
    (re.compile(r"#include <(iostream|sstream|fstream|format)>"), "no iostream or format in the library"),
    (re.compile(r"\b(throw\s|try\s*\{|catch\s*\()"), "no exceptions in the library"),
]
THREADS = (re.compile(r"std::(thread|jthread|mutex|condition_variable|async)\b"), "threads only in base/ and device/")


def read_layers():
    layers = {}
    with open(os.path.join(ROOT, "src/layers.txt")) as lines:
        for line in lines:
            line = line.split("#")[0].strip()
            if line:
                name, allowed = line.split(":")
                layers[name] = set(allowed.split()) | {name}
    return layers


def without_raw_strings(text):
    """Raw strings hold texts of other languages (kernels, their reserved words); lines keep their numbers."""
    return re.sub(r'R"(\w*)\((.*?)\)\1"', lambda m: '""' + "\n" * m[0].count("\n"), text, flags=re.DOTALL)


def main():
    layers, problems = read_layers(), []
    for folder, _, files in os.walk(os.path.join(ROOT, "src")):
        for file in files:
            path = os.path.relpath(os.path.join(folder, file), ROOT)
            if not path.endswith((".h", ".cc")):
                continue
            layer = path.split(os.sep)[1]
            if layer not in layers:
                problems.append(f"{path}: folder {layer} is not in src/layers.txt")
                continue
            is_test = re.search(r"(_test|_fuzz|_main)\.(cc|h)$", path) is not None
            with open(os.path.join(ROOT, path), encoding="utf-8") as source:
                text = without_raw_strings(source.read())
            for number, line in enumerate(text.split("\n"), 1):
                include = re.match(r'#include "([a-z_]+)/', line)
                if include and include[1] in layers and include[1] not in layers[layer]:
                    problems.append(f"{path}:{number}: {layer} may not include {include[1]}")
                if layer == "cli" or is_test:
                    continue
                code = line.split("//")[0]
                rules = FORBIDDEN + ([] if layer in ("base", "device") else [THREADS])
                problems += [f"{path}:{number}: {why}" for pattern, why in rules if pattern.search(code)]
    print("\n".join(problems) if problems else "layers: as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
