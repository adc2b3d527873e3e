#!/usr/bin/env bash
# Lines of Rust by crate, outside tests and in them: scripts/size.sh [COMMIT]. Tests are tests/, tests.rs, fuzz/ and modules under
# `#[cfg(test)]`. The last lines have the words of the documents, those that a command makes (docs/generated/) apart: a word has a letter
# or a digit, so that bars of tables and marks of lists are none.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 - "${1:-HEAD}" <<'PYTHON'
import re, subprocess, sys

commit = sys.argv[1]


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, check=True).stdout


def in_tests(lines):
    """Number of lines in modules under `#[cfg(test)]`: up to the brace that ends the module."""
    count, end = 0, None
    for number, line in enumerate(lines):
        if end is None and line.strip() == "#[cfg(test)]" and re.match(r"\s*(#|(pub.* )?mod \w+ \{)", (lines + [""])[number + 1]):
            end = line[: len(line) - len(line.lstrip())] + "}"
        if end is not None:
            count += 1
            end = None if line == end else end
    return count


names = git("ls-tree", "-r", "--name-only", commit).decode().split("\n")
crates = sorted((name[: -len("Cargo.toml")] for name in names if name.endswith("/Cargo.toml")), key=len, reverse=True)
product, tests, words = {}, {}, {"by hand": 0, "generated": 0}
for name in names:
    if name.endswith(".md"):
        kind = "generated" if name.startswith("docs/generated/") else "by hand"
        words[kind] += sum(bool(re.search(r"\w", word)) for word in git("show", f"{commit}:{name}").decode().split())
    if not name.endswith(".rs"):
        continue
    crate = next(crate for crate in crates if name.startswith(crate))
    lines = git("show", f"{commit}:{name}").decode().split("\n")[:-1]
    of_tests = len(lines) if re.search(r"(^|/)(tests|fuzz)/|(^|/)tests\.rs$", name) else in_tests(lines)
    product[crate] = product.get(crate, 0) + len(lines) - of_tests
    tests[crate] = tests.get(crate, 0) + of_tests
print(f"{'crate':<24}{'product':>9}{'tests':>9}")
for crate in sorted(product, key=lambda crate: -product[crate]):
    print(f"{crate.rstrip('/'):<24}{product[crate]:>9}{tests[crate]:>9}")
print(f"{'all':<24}{sum(product.values()):>9}{sum(tests.values()):>9}")
for kind, count in words.items():
    print(f"words in documents, {kind}: {count}")
PYTHON
