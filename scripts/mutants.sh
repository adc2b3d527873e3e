#!/usr/bin/env bash
# Whether the tests of the pure crates notice small changes of their code: scripts/mutants.sh [K/N [PART...]], K from 0.
# Changes one line at a time in a copy of the tree (cargo-mutants) and runs the tests of that crate alone. K/N takes each
# N-th mutant: all of them take many hours. Parts: limiter, region, quota, cdi, plugin (what of it only computes).
# Fails if a mutant survives that is not in .cargo/mutants.toml, the reviewed list of mutants that change nothing.
# Ends with 77 where cargo-mutants cannot be had: its last line says so.
set -euo pipefail
cd "$(dirname "$0")/.."
shard=${1:-0/1}
[[ "$shard" =~ ^[0-9]+/[1-9][0-9]*$ ]] || { echo "usage: scripts/mutants.sh [K/N [PART...]]"; exit 2; }
parts=("${@:2}")
[ "${#parts[@]}" -gt 0 ] || parts=(cdi quota limiter region plugin)
# The builds of the copies are beside the usual ones: those of the dependencies serve the next run.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
cargo mutants --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-mutants ||
    { echo "SKIPPED mutants: cargo-mutants is not installed and could not be built"; exit 77; }
export CARGO_TARGET_DIR=$target/build

plugin_files=(
    plugin/src/{amounts,gpu_request,ids,resources,share_lru}.rs
    plugin/src/{bind/grants,bind/parts,pods/holder,publish/parts,serve/authority}.rs
    plugin/src/dra/{claim,device,device/capacity,grants,slices/compare,users}.rs
)
survived=()
# mutants NAME ARGUMENT...: changes a crate
mutants() {
    local name=$1 status=0 found
    printf '\n== mutants of %s, shard %s\n' "$name" "$shard"
    mkdir -p "$target/$name"
    nice -n 19 cargo mutants --test-tool cargo --package "vcuda-$name" --output "$target/$name" --cap-lints true \
        --shard "$shard" --sharding round-robin --no-shuffle --colors never "${@:2}" || status=$?
    # 2: some survived. 3: the tests did not end for some, which counts as noticed.
    case $status in
    0 | 2 | 3) ;;
    *) echo "cargo-mutants ended with $status" && exit 1 ;;
    esac
    found=$target/$name/mutants.out/missed.txt
    [ ! -s "$found" ] || survived+=("$found")
}
for part in "${parts[@]}"; do
    case $part in
    limiter | region | cdi) mutants "$part" ;;
    # Without the feature nothing of the pods is compiled.
    quota) mutants quota --features pods ;;
    plugin)
        files=()
        for file in "${plugin_files[@]}"; do
            [ -e "$file" ] || { echo "no file $file: mend the list in scripts/mutants.sh"; exit 1; }
            files+=(--file "$file")
        done
        mutants plugin "${files[@]}" -- --lib
        ;;
    *) echo "no part $part: limiter, region, quota, cdi, plugin" && exit 2 ;;
    esac
done
if [ "${#survived[@]}" -gt 0 ]; then
    printf '\nthe tests do not notice:\n'
    cat "${survived[@]}"
    exit 1
fi
printf '\nmutants: each one of shard %s was noticed\n' "$shard"
