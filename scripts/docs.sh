#!/usr/bin/env bash
# Builds the site of the documents with mdBook, into target/book/html, and checks that each link leads somewhere. Builds mdBook where it
# is missing; status 77 with the reason if it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED docs: $*"; exit 77; }

mdbook=$(command -v mdbook || echo target/mdbook/bin/mdbook)
if ! "$mdbook" --version >/dev/null 2>&1; then
    mkdir -p target
    cargo install mdbook --locked --quiet --root target/mdbook >target/mdbook.log 2>&1 || skip "mdBook could not be installed (target/mdbook.log)"
fi

# The pages with what they link to, in the repository's layout.
source=target/book/src
rm -rf target/book
mkdir -p $source
git ls-files --cached --others --exclude-standard '*.md' 'docs/*' 'deploy/*' | while read -r file; do
    [ ! -e "$file" ] || { mkdir -p "$source/$(dirname "$file")" && cp "$file" "$source/$file"; }
done
sed -E 's|\]\(|](docs/|; s|\]\(docs/\.\./|](|' docs/SUMMARY.md >$source/SUMMARY.md
rm $source/docs/SUMMARY.md
sed -i 's|\[All pages\](docs/SUMMARY.md)|All pages|' $source/README.md
"$mdbook" build . >&2
cargo test --quiet -p vcuda-tests --test documents each_link_leads_somewhere >&2
echo "docs: target/book/html/index.html"
