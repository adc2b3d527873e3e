# Stage "checkpoint": moving a process's GPU state to host memory and back. docs/evidence.md.
# shellcheck shell=bash disable=SC2154

stage_checkpoint() {
    measure checkpoint 100 "$dir/hardware/checkpoint" 512
    expect checkpoint.bare plain_intact 1 1
    expect checkpoint.bare locked_intact 1 1
    measure checkpoint-4GiB 60 "$dir/hardware/checkpoint" 4096 plain
}
