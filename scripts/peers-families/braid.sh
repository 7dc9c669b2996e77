# The family `braid` for the peers' scripts (see scripts/peers-bench): a cluster of `braid up`, one metadata server and
# three data servers, plain files and one copy of the metadata, as the peers have no copies either; over Unix sockets. Sourced by their lib.sh, which sets STATE, DIR and VARIANT.
# A variant is a mount with other settings: SETTINGS holds them, one `--set` each.
# shellcheck shell=bash disable=SC2154

peer_install() { :; }

braid_var() { printf '%s/var' "$STATE"; }

# Processes of a `braid` command must not keep the caller's descriptors (a benchmark's lock) open.
braid_run() { "${BRAID:?the braid program}" "$@" 9>&- >>"$STATE/log/braid.log" 2>&1; }

peer_up() {
    # shellcheck disable=SC2086
    braid_run up "$(braid_var)" --no-mount \
        ${BRAID_UP:---data-servers 3 --set metadata.policy=plain --set metadata.copies=0}
}

peer_mount() {
    local settings=() one
    for one in ${BRAID_MOUNT:-}; do settings+=(--set "$one"); done
    braid_run mount "$DIR" --cluster "$(braid_var)" --log "$STATE/log/mount.log" "${settings[@]}"
    wait_for 20 stat "$DIR"
}

# The mount's process sends what it has and ends its session; a second client that came before that would be one of two.
peer_umount() {
    mountpoint -q "$DIR" || return 0
    local pids pid
    pids=$(pids_with "mount $DIR --cluster")
    braid_run umount "$DIR"
    for pid in $pids; do
        wait_for 60 bash -c "! kill -0 $pid"
    done
}

peer_down() { braid_run down "$(braid_var)" || true; }
