# Stage "frameworks": Python packages with the same results as without the shim.
# shellcheck shell=bash disable=SC2154

# Side by side: most of their time is the loading of libraries. Only results count here, no times.
stage_frameworks() {
    local clients=$dir/clients
    python_client nvidia-ml-py 60 8GiB pynvml "$clients/nvml.py" &
    python_client PyTorch 150 8GiB torch "$clients/torch_train.py" &
    python_client PyTorch-graphs 150 8GiB torch "$clients/torch_train.py" graph &
    PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python_client PyTorch-cudaMallocAsync 150 8GiB torch "$clients/torch_train.py" &
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python_client PyTorch-expandable 150 8GiB torch "$clients/torch_train.py" &
    python_client CuPy 150 8GiB cupy "$clients/cupy_sums.py" &
    python_client cuda-bindings 60 8GiB cuda.bindings.driver "$clients/bindings.py" &
    wait
    # By itself: without the shim it takes three quarters of the GPU. Its log has sizes and times.
    COMPARE="^passed" python_client JAX 150 20GiB jax "$clients/jax_sums.py"
}
# Each bare and as a tenant: the quota is the total, an out-of-memory is survived, the results are the same.
python_client() { # NAME SECONDS QUOTA PACKAGE SCRIPT ARGUMENTS...
    local name=$1 seconds=$2 quota=$3 package=$4
    shift 4
    python3 -c "import $package" >/dev/null 2>&1 || { row skipped "$name" "python3 has no $package"; return; }
    [ -z "$simulated" ] || [[ $package = pynvml || $package = cuda.bindings.driver ]] || { row skipped "$name" "not simulated: the CUDA runtime"; return; }
    both "$name" "$seconds" "--memory $quota --cores 90" python3 "$@" || return
    local figures
    mapfile -t figures < <(awk '$3 == "result" {print $1}' "$results/$name.bare")
    for figure in "${figures[@]}"; do alike "$name" "$figure" 0.1; done
    [ -z "$(figure "$name.tenant" total)" ] || expect "$name.tenant" total $((${quota%GiB} << 30)) $((${quota%GiB} << 30))
}
