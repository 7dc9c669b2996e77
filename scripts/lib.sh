# Shared by the scripts that try a real mount. Source it.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
braid=${BRAID:-${CARGO_TARGET_DIR:-$root/target}/release/braid}

say() { printf '%s\n' "$*"; }
die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# A cluster of its own in a new directory; gone again, with its processes, when the script ends.
make_cluster() { # [braid up options...]
    work=$(mktemp -d "${TMPDIR:-/tmp}/braid-try.XXXXXX")
    # Other users must reach the mount: the POSIX suite acts as them.
    chmod 755 "$work"
    var=$work/var mnt=$work/mnt
    trap 'end_cluster' EXIT
    "$braid" up "$var" --mount "$mnt" "$@" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; die "braid up"; }
}

end_cluster() {
    local code=$?
    if [ "$code" -ne 0 ] && [ -d "$var/log" ]; then
        say "--- last lines of the logs"
        tail -n 15 "$var"/log/*.log
    fi
    timeout 120 "$braid" down "$var" >/dev/null 2>&1 || say "braid down did not end well"
    if mountpoint -q "$mnt" 2>/dev/null || grep -q " $mnt fuse" /proc/self/mountinfo; then umount -l "$mnt"; fi
    [ -n "${KEEP:-}" ] || rm -rf "$work"
    exit "$code"
}

pid_of() { cat "$var/run/$1.pid"; }

# Kills a server of the cluster as a crash would, and starts it again.
kill_hard() { kill -9 "$(pid_of "$1")" 2>/dev/null || true; }
up_again() { "$braid" up "$var" --mount "$mnt" >>"$work/up.log" 2>&1 || die "braid up after a kill"; }

fsck_clean() { "$braid" admin fsck --cluster "$var" >"$work/fsck.log" 2>&1 || { cat "$work/fsck.log"; die "fsck is not clean"; }; }
