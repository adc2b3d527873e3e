# Stage "tail": how long the requests of a critical tenant take at a third of the GPU beside one that trains, in kernels that fill
# the GPU: alone, by plain slices, with quotas, with guarantee and priority, and under HAMi-core (HAMI_CORE, see peers.sh).
# shellcheck shell=bash disable=SC2154

stage_tail() {
    local hw=$dir/hardware us seconds
    seconds=$([ -n "$simulated" ] && echo 3 || echo 12)
    # shellcheck source=/dev/null
    . "$dir/gpu-acceptance/peers.sh"
    measure tail-calibrate 30 "$hw/shares" calibrate 100 wide || return
    # 20 kernels of 100 us each 6 ms
    iterations=$(figure tail-calibrate.bare iterations)
    request=("$hw/shares" requests "$iterations" "$seconds" 20 6000)
    measure tail-alone 60 "${request[@]}" || return
    for us in 100 1000 5000; do beside_trainer "$hw" $us; done
}
# Beside kernels of that length (us)
beside_trainer() {
    local us=$2 train=("$1/shares" $((seconds + 4)) $((iterations * $2 / 100)) wide) name figures=""
    trained "tail-$us-plain" "${bare[@]}" "${train[@]}"
    bare_run "tail-$us-plain" 60 "${request[@]}"
    wait $trainer
    trained "tail-$us-shares" "${tenant[@]}" --memory 8GiB --cores 50 -- "${train[@]}"
    tenant_run "tail-$us-shares" 60 "--memory 8GiB --cores 50" "${request[@]}"
    wait $trainer
    trained "tail-$us-critical" "${tenant[@]}" --memory 8GiB --policy best-effort --priority low -- "${train[@]}"
    tenant_run "tail-$us-critical" 60 "--memory 8GiB --cores 50 --policy burst" "${request[@]}"
    wait $trainer
    if [ -s "${HAMI_CORE-}" ]; then
        peer_run "tail-$us-trainer" 60 8192 50 "${train[@]}" &
        trainer=$!
        peer_run "tail-$us" 60 8192 50 "${request[@]}"
        wait $trainer
    fi
    for name in alone.bare "$us-plain.bare" "$us-shares.tenant" "$us-critical.tenant" "$us.peer"; do
        [ ! -e "$results/tail-$name" ] || figures+="$name $(for one in median p99 p999; do figure "tail-$name" request_$one; done | xargs printf '%.0f %.0f %.0f us'); "
    done
    row measured "requests beside kernels of $us us: p50 p99 p99.9" "$figures"
}
# trained NAME COMMAND...: begins the trainer, and waits until it trains
trained() {
    limited 60 "$results/$1.trainer" "${@:2}" &
    trainer=$!
    sleep 2
}
