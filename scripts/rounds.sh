# Shared by kill-rounds, fault-rounds and power-rounds: a load whose promises are recorded, a crash in its middle, and the comparison.
# Source it after lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154  # work, mnt, var, braid: lib.sh

powercut=${POWERCUT:-$(dirname "$braid")/braid-powercut}
mapfile -t servers < <(echo metadata; seq -f data-%g "${data_servers:-4}")
longest=0 longest_call=none cuts=0
# More mounts, of which each call goes to one.
load_also=()

ms_now() { echo $(( $(date +%s%N) / 1000000 )); }
sleep_ms() { sleep "$(( $1 / 1000 )).$(printf %03d $(( $1 % 1000 )))"; }
# A number below $2 that the seed decides, another for each $3.
drawn() { echo $(( ($1 * 7919 + $3 * 104729 + 12345) % $2 )); }

start_load() { # name seed
    local more=() at
    for at in "${load_also[@]}"; do more+=(--also "$at/$1"); done
    rm -f "$work/stop"
    "$powercut" load "$mnt/$1" "${more[@]}" --record "$work/$1.record" --stop "$work/stop" --seed "$2" >"$work/$1.load" 2>&1 &
    load_pid=$!
}

# A second mount that lives through all rounds, if a script wants one.
mount_beside() {
    beside=$work/beside
    mkdir "$beside"
    "$braid" mount "$beside" --cluster "$var" >"$work/beside.log" 2>&1 || { cat "$work/beside.log"; broken "a second mount"; }
}
take_away() { if [ -n "${beside:-}" ] && is_mount "$beside"; then umount -l "$beside"; fi; }

# Reads everything of the load from the second mount, again and again. A name that has gone since it was listed is no failure.
start_watch() { # name
    watch_pid=''
    [ -n "${beside:-}" ] && [ -n "${watched:-}" ] || return 0
    : >"$work/watch.errors"
    : >"$work/watch.read"
    {
        until [ -e "$work/stop" ]; do
            find "$beside/$1" -type f -exec cat {} + 2>>"$work/watch.errors" | wc -c >>"$work/watch.read" || true
            sleep 0.05
        done
    } &
    watch_pid=$!
}

end_watch() { # name
    [ -n "${watch_pid:-}" ] || return 0
    wait "$watch_pid" || true
    watch_pid=''
    grep -q '^[1-9]' "$work/watch.read" || { cat "$work/watch.read" "$work/watch.errors" | head -n 20; broken "$1: the second mount has read nothing"; }
    if grep -v "No such file or directory" "$work/watch.errors" >"$work/watch.failed"; then
        head -n 5 "$work/watch.failed"
        broken "$1: reads of the second mount failed"
    fi
}

# The data server that owns the chunks that are written now: the first of its chain, of the container with the most chunks.
owner_now() {
    local id
    id=$("$braid" admin containers --json --cluster "$var" | jq -s 'max_by(.chunks_given - .chunks_freed) | .chain[0]')
    [ -n "$id" ] && [ "$id" != null ] || die "no container has chunks"
    echo "data-$id"
}

end_load() { # name; a call that hangs must not hang the script
    touch "$work/stop"
    local tries=0
    while kill -0 "$load_pid" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 900 ]; then
            tail -qn 1 "$work/$1.record"/w*
            "$braid" admin why --cluster "$var" || true
            broken "$1: the load hangs: a call did not return in 90 s ($(grep -c . <"$work/$1.load") lines in its log)"
        fi
        sleep 0.1
    done
    wait "$load_pid" || { cat "$work/$1.load"; broken "$1: the load saw what it had not written"; }
    acknowledged=$(grep -o 'acknowledged=[0-9]*' "$work/$1.load" | cut -d= -f2)
    [ "${acknowledged:-0}" -gt 0 ] || { cat "$work/$1.load"; broken "$1: the load did nothing"; }
}

# The load that went on through the crash: no call failed, and it got on after it.
load_lived() { # name
    grep -q ' failed=0 ' "$work/$1.load" || { cat "$work/$1.load"; broken "$1: calls failed although the mount lived"; }
    local ms
    ms=$(grep -o 'longest_ms=[0-9]*' "$work/$1.load" | cut -d= -f2)
    if [ "$ms" -gt "$longest" ]; then longest=$ms longest_call="$1: $(grep -o 'call=.*' "$work/$1.load")"; fi
}

check_promises() { # name [--everything|--beginning]
    timeout 120 "$powercut" check "${at:-$mnt}/$1" --record "$work/$1.record" ${2:+"$2"} >"$work/$1.check" 2>&1 || {
        head -n 60 "$work/$1.check"
        broken "$1: promises are broken${2:+ ($2)}"
    }
    last_check=$(tail -n 1 "$work/$1.check")
}

mount_lives() { # after what
    timeout 60 ls "$mnt" >/dev/null || broken "the mount is dead after $1"
    echo "$1" >"$work/probe"
    timeout 60 dd if="$work/probe" of="$mnt/probe" conv=fsync status=none || broken "the mount takes no writes after $1"
    [ "$(timeout 60 cat "$mnt/probe")" = "$1" ] || broken "the mount reads wrong after $1"
}

# Of `status`: `up` is also who was heard 9 s ago and is about to be down; a heartbeat comes every second.
all_are_back='(.servers | length > 0 and all(.state == "up" and .silent_ms < 3000))'

# fsck cannot ask who has not come back to the metadata server yet, and says so.
fsck_data_clean() { # after what
    local begun=$(ms_now)
    until "$braid" admin status --json --cluster "$var" 2>/dev/null | jq -e "$all_are_back" >/dev/null; do
        [ $(( $(ms_now) - begun )) -lt 60000 ] || { "$braid" admin status --cluster "$var" >&2; broken "servers are not back 60 s after $1"; }
        sleep 0.2
    done
    timeout 120 "$braid" admin fsck --data --cluster "$var" >"$work/fsck.log" 2>&1 ||
        { cat "$work/fsck.log"; broken "fsck --data is not clean after $1"; }
}

# Before what is left is compared: a script may define it anew.
after_crash() { :; }

# One crash in the middle of a load. $crash is called with the victims; with `mount` among them the load ends with it.
crash_once() { # name seed victims...
    local name=$1 seed=$2 with_mount=no may_lose='' began
    shift 2
    # Who is only stopped, or not heard, lives on.
    [[ " $* " == *" mount "* && ${fault:-mount} == mount ]] && with_mount=yes
    # What both had answered and made durable nowhere goes with them.
    [[ " $* " == *" metadata "* && $with_mount = yes ]] && may_lose=--beginning
    start_load "$name" "$seed"
    start_watch "$name"
    sleep_ms $((300 + $(drawn "$seed" 900 1)))
    began=$(ms_now)
    crash "$seed" "$@"
    sleep_ms "$(drawn "$seed" 400 2)"
    up_again
    mount_lives "$name: $*"
    local probe=$(( $(ms_now) - began ))
    [ "$with_mount" = yes ] || sleep_ms 700
    end_load "$name"
    end_watch "$name"
    after_crash
    if [ "$with_mount" = no ]; then
        load_lived "$name"
        # What the kernel and the client remember must be right too: the same mount, then one that remembers nothing.
        check_promises "$name" --everything
        if [ -n "${beside:-}" ]; then at=$beside check_promises "$name" --everything; fi
        fsck_data_clean "$name: $*"
        kill_hard mount
        up_again
    fi
    if [ -n "${previous:-}" ]; then
        check_promises "$previous" "$previous_may_lose"
        rm -rf "${mnt:?}/$previous" "$work/$previous".*
    fi
    previous=$name previous_may_lose=$may_lose
    check_promises "$name" "$may_lose"
    fsck_data_clean "$name: $* and the mount"
    cuts=$((cuts + 1))
    say "$name: $* seed=$seed: ok, $acknowledged calls acknowledged, up again after $probe ms; $last_check"
}

# Every copy there should be, whole: what `status` says has nothing lacking, and every server is back, or fsck could not ask it.
# Prints how long that took.
whole_again() {
    local begun=$(ms_now) status
    while :; do
        status=$("$braid" admin status --json --cluster "$var") || true
        if jq -e "$all_are_back"' and (.copies | .containers > 0 and .containers_short + .containers_changing + .copies_lacking + .bytes_lacking + .servers_with_strays == 0)' \
            <<<"$status" >/dev/null; then break; fi
        [ $(( $(ms_now) - begun )) -lt 120000 ] || { say "$status" >&2; broken "copies are not whole 120 s after ${fault:-a fault}"; }
        sleep 0.2
    done
    echo $(( $(ms_now) - begun ))
}

# A crash under $fault, with copies that have to be whole before what is left is compared; the longest call of each fault is kept.
declare -A worst
fault_once() { # seed victims...
    local seed=$1
    longest=0
    crash_once "$seed-$fault" "$@"
    say "    longest call $longest ms, all copies whole after another $healed ms"
    if [ "$longest" -gt "${worst[$fault]:-0}" ]; then worst[$fault]=$longest; fi
}

say_worst() { # faults...
    local fault
    for fault in "$@"; do say "    $fault: ${worst[$fault]:-0} ms"; done
}
