# Several hosts on one machine: a network namespace for each server and for the mount, on one bridge, and a firewall between any
# two when told. Source it after lib.sh. Needs root, iproute2, nftables and util-linux.
# shellcheck shell=bash
# shellcheck disable=SC2154  # work, mnt, var, braid, root: lib.sh

hosts=() bridge=braid$$
net() { echo "braid$$-$1"; }
at_host() { local host=$1; shift; nsenter --net="/var/run/netns/$(net "$host")" "$@"; }
address_of() { # host
    local i
    for i in "${!hosts[@]}"; do [ "${hosts[$i]}" != "$1" ] || echo "10.213.77.$((i + 1))"; done
}

make_hosts() { # names...
    command -v nft >/dev/null || die "there is no nft: apt-get install nftables"
    hosts=("$@")
    ip link add "$bridge" type bridge
    ip link set "$bridge" up
    local host
    for host in "${hosts[@]}"; do
        ip netns add "$(net "$host")"
        ip link add "v$$-$host" type veth peer name eth0 netns "$(net "$host")"
        ip link set "v$$-$host" master "$bridge" up
        ip -n "$(net "$host")" addr add "$(address_of "$host")/24" dev eth0
        ip -n "$(net "$host")" link set eth0 up
        ip -n "$(net "$host")" link set lo up
    done
}

remove_hosts() {
    local host
    for host in "${hosts[@]}"; do
        # A namespace goes with its last process, and the link with it, some time later: another cluster may come at once.
        ip link del "v$$-$host" 2>/dev/null || true
        ip netns del "$(net "$host")" 2>/dev/null || true
    done
    ip link del "$bridge" 2>/dev/null || true
}

# Nothing gets from one to the other, and nobody is told so: packets are dropped, both ways.
sever() { # host host
    at_host "$1" nft -f - <<RULES
table inet braid {
    chain out { type filter hook output priority 0; ip daddr $(address_of "$2") drop; }
    chain in { type filter hook input priority 0; ip saddr $(address_of "$2") drop; }
}
RULES
}
heal() { at_host "$1" nft flush ruleset; } # the first host of what was severed

# Starts a process there, if it does not run, and waits until it says that it is ready.
run_on() { # host, name of the process, arguments of braid...
    local host=$1 name=$2; shift 2
    if [ -e "$var/run/$name.pid" ] && is_process "$(pid_of "$name")"; then return; fi
    mkdir -p "$var/run" "$var/log"
    rm -f "$var/run/$name.ready"
    # Not `at_host`: what is to be killed is the program, and no shell around it.
    nsenter --net="/var/run/netns/$(net "$host")" "$program" "$@" --ready-file "$var/run/$name.ready" \
        --set "cluster.host=$host" --config "$var/braid.toml" >>"$var/log/$name.log" 2>&1 &
    echo $! >"$var/run/$name.pid"
    disown # or the shell says of each that it was killed
    for _ in $(seq 600); do [ -e "$var/run/$name.ready" ] && return; sleep 0.05; done
    tail -n 5 "$var/log/$name.log"
    broken "$name does not start"
}
serve_metadata() { # host
    run_on "$1" metadata serve metadata --set "metadata.dir=$var/metadata" --set "metadata.listen=[\"tcp:$(address_of "$1"):7400\"]"
}
serve_data() { # host, name
    run_on "$1" "$2" serve data --set "data.dir=$var/$2" --set "data.listen=[\"tcp:$(address_of "$1"):0\"]"
}
mount_on() { # host, name, mount point, options...
    local host=$1 name=$2 at=$3; shift 3
    # It may be there and lead nowhere: its mount was killed.
    mkdir -p "$at" 2>/dev/null || true
    run_on "$host" "$name" mount "$at" --foreground "$@"
}

# Starts what does not run of: metadata, data-N, mount. Each host runs the process of its name.
start_on_hosts() {
    local host
    for host in "${hosts[@]}"; do
        case $host in
            metadata) serve_metadata "$host" ;;
            data-*) serve_data "$host" "$host" ;;
            mount) mount_on "$host" mount "$mnt" ;;
        esac
    done
}

# A cluster of hosts, with the mount on one of its own. `braid` speaks from there.
make_cluster_on_hosts() { # policy, data servers
    make_work
    program=$braid
    local names
    mapfile -t names < <(echo metadata; seq -f data-%g "$2"; echo mount)
    make_hosts "${names[@]}"
    mkdir -p "$var" "$mnt"
    cat >"$var/braid.toml" <<CONFIG
[cluster]
metadata = ["tcp:$(address_of metadata):7400"]
[metadata]
policy = "$1"
CONFIG
    printf '#!/bin/sh\nexec nsenter --net=/var/run/netns/%s %s "$@"\n' "$(net mount)" "$program" >"$work/braid"
    chmod +x "$work/braid"
    braid=$work/braid
    start_on_hosts
}

up_again() { start_on_hosts; }
