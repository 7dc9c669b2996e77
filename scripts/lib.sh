# Shared by the scripts that try a real mount. Source it.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
braid=${BRAID:-${CARGO_TARGET_DIR:-$root/target}/release/braid}

say() { printf '%s\n' "$*"; }
die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
# The same where BraidFS did not do what it promises; every other failure is one of the machine or of the script.
broken() { printf 'FAILED: %s\n' "$*" >&2; exit 3; }

# A directory to work in, and in it where a cluster is to lie; gone again, with its processes, when the script ends.
make_work() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/braid-try.XXXXXX")
    # Other users must reach the mount: the POSIX suite acts as them.
    chmod 755 "$work"
    var=$work/var mnt=$work/mnt
    trap 'end_cluster' EXIT
}

# What plain files do, on a cluster whose metadata lies on one disk: neither is what `braid up` makes by itself.
plain=(--data-servers 3 --set metadata.policy=plain --set metadata.copies=0)

make_cluster() { # [braid up options...]
    make_work
    "$braid" up "$var" --mount "$mnt" "$@" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; die "braid up"; }
}

# What a script has to say when it fails, and to take away before its directory goes: it may define these anew.
explain() { :; }
take_away() { :; }

end_cluster() {
    local code=$?
    # What goes by itself while it is being put away is no failure: what was tried has its result.
    set +e
    if [ "$code" -ne 0 ]; then
        explain
        if [ -d "$var/log" ]; then
            say "--- last lines of the logs"
            tail -n 15 "$var"/log/*.log
        fi
    fi
    timeout 120 "$braid" down "$var" >/dev/null 2>&1 || say "braid down did not end well"
    if is_mount "$mnt"; then umount -l "$mnt"; fi
    take_away
    if [ -n "${KEEP:-}" ]; then say "kept: $work"; else rm -rf "$work"; fi
    exit "$code"
}

# Also of a mount whose process is gone, where `mountpoint` only gets an error.
is_mount() { grep -q " $1 " /proc/self/mountinfo; }

pid_of() { cat "$var/run/$1.pid"; }

# Not also of what has ended and whose parent has not looked yet, as `kill -0` does.
is_process() { # pid, or nothing where there is none
    local state
    [ -n "$1" ] || return 1
    state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)
    [ -n "$state" ] && [ "$state" != Z ]
}

# Kills processes of the cluster as a crash would. The kernel takes a moment to end one, and until then `up` finds it running.
kill_hard() { # names...
    local pids=() name pid
    for name in "$@"; do pids+=("$(pid_of "$name")"); done
    kill -9 "${pids[@]}"
    for pid in "${pids[@]}"; do
        for _ in $(seq 500); do
            is_process "$pid" || break
            sleep 0.02
        done
    done
}
# Starts what does not run.
up_again() { "$braid" up "$var" --mount "$mnt" >>"$work/up.log" 2>&1 || broken "braid up after a kill"; }

settled() { # cluster: every copy has everything
    for _ in $(seq 1 100); do
        [ "$("$braid" admin status --cluster "$1" --json | jq .copies.chunks_lacking)" = 0 ] && return
        sleep 0.2
    done
    die "copies are behind: $("$braid" admin status --cluster "$1")"
}

fsck_clean() { "$braid" admin fsck --cluster "$var" >"$work/fsck.log" 2>&1 || { cat "$work/fsck.log"; broken "fsck is not clean"; }; }
