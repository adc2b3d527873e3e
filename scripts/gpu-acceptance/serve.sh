# Stage "serve": two language models of four billion parameters on one GPU: tokens a second, time to the first token and between
# tokens with 1, 4 and 16 requests in flight (clients/serve.py). With HAMI_CORE (see peers.sh) also under HAMi-core.
# shellcheck shell=bash disable=SC2154

stage_serve() {
    [ -z "$simulated" ] || { row skipped serve "not simulated: the CUDA runtime"; return; }
    python3 -c "import torch" >/dev/null 2>&1 || { row skipped serve "no PyTorch here"; return; }
    # shellcheck source=/dev/null
    . "$dir/gpu-acceptance/peers.sh"
    serve alone 1 bare_run "" ""
    serve plain 2 bare_run "" ""
    serve half 2 tenant_run "--memory 24GiB --cores 50" "--memory 24GiB --cores 50"
    serve unequal 2 tenant_run "--memory 24GiB --cores 70" "--memory 24GiB --cores 30"
    serve burst 2 tenant_run "--memory 24GiB --cores 50 --policy burst" "--memory 24GiB --cores 50 --policy burst"
    serve limit 1 tenant_run "--memory 24GiB --cores 95" ""
    [ ! -s "${HAMI_CORE-}" ] || serve peer 2 hami 50 50
}
hami() { peer_run "$1" "$2" 24576 "$3" "${@:4}"; }
# serve NAME MODELS HOW QUOTA QUOTA: so many models at once, each run by HOW, which takes the quota unless it is empty
serve() {
    local name=$1 models=$2 how=$3 quotas=("${@:4}") together pids=() n
    together=$(mktemp -d "$work/together.XXXXXX")
    for ((n = 0; n < models; n++)); do
        "$how" "serve-$name-$n" 120 ${quotas[n]:+"${quotas[n]}"} python3 "$dir/clients/serve.py" "$together" "$models" &
        pids+=($!)
    done
    wait "${pids[@]}"
    for requests in 1 4 16; do
        row measured "serve $name, $requests in flight" "$(of_all "$name" tokens_per_second_$requests) tokens/s; first $(of_all "$name" first_token_${requests}_p50), p99 $(of_all "$name" first_token_${requests}_p99) ms; between $(of_all "$name" between_tokens_${requests}_p50), p99 $(of_all "$name" between_tokens_${requests}_p99) ms"
    done
}
# A figure of each model
of_all() {
    local file
    for file in "$results/serve-$1"-[0-9].{bare,tenant,peer}; do
        [ ! -e "$file" ] || printf '%.1f\n' "$(figure "$(basename "$file")" "$2")"
    done | paste -sd+
}
