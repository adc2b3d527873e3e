#!/usr/bin/env bash
# Finds words of scripts/old-terms.txt in names and comments: one word for one thing (ARCHITECTURE.md).
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
while IFS=$'\t' read -r paths word instead; do
    [[ -z "$paths" || "$paths" == \#* ]] && continue
    # A word of a name stands alone, between underscores, or begins with a capital in CamelCase; case does not matter.
    read -ra where <<<"$paths"
    if found=$(git grep --untracked -nIiP "(?<![A-Za-z])(?:$word)(?![A-Za-z])" -- "${where[@]}" ':!*.lock' ':!*.json' ':!*.txt'); then
        echo "check-terms: \"$word\": say \"$instead\""
        head -n "${SHOW:-5}" <<<"$found" | cut -c1-160
        failed=1
    fi
done <scripts/old-terms.txt
[ "$failed" = 0 ] && echo "check-terms: no old term"
exit "$failed"
