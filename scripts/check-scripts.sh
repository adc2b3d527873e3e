#!/usr/bin/env bash
# Reads all scripts: the shell's with shellcheck, Python's with ruff. Fetches the two where they are missing; status 77 with
# the reason if one cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED check-scripts: $*"; exit 77; }

mapfile -t shell < <(git ls-files '*.sh' .ci/run)
mapfile -t python < <(git ls-files '*.py')
if ! command -v shellcheck >/dev/null; then
    [ "$(id -u)" = 0 ] || skip "shellcheck is not installed"
    mkdir -p target
    { apt-get update && apt-get install -y --no-install-recommends shellcheck; } >target/shellcheck.log 2>&1 ||
        skip "shellcheck: apt-get could not (target/shellcheck.log)"
fi
shellcheck "${shell[@]}"

ruff=target/ruff/bin/ruff
if ! $ruff --version >/dev/null 2>&1; then
    { python3 -m venv target/ruff && target/ruff/bin/pip -q --disable-pip-version-check install ruff; } >&2 ||
        skip "ruff: PyPI does not answer, or Python has no venv"
fi
# Names, syntax, bugs. Not B023: the lambdas in loops are called at once. Not B905: the lists that are zipped belong together.
$ruff check --isolated --quiet --no-cache --select F,E9,PLE,B --ignore B023,B905 "${python[@]}"
echo "check-scripts: ${#shell[@]} scripts of the shell, ${#python[@]} of Python"
