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
    for host in "${hosts[@]}"; do ip netns del "$(net "$host")" 2>/dev/null || true; done
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

# Starts what does not run of: metadata, data-N, mount. Each host runs the process of its name.
start_on_hosts() {
    local name pid
    mkdir -p "$var/run" "$var/log"
    for name in "${hosts[@]}"; do
        if [ -e "$var/run/$name.pid" ] && is_process "$(pid_of "$name")"; then continue; fi
        local arguments=(serve "${name%-*}" --set "${name%-*}.dir=$var/$name")
        case $name in
            metadata) arguments+=(--set "metadata.listen=[\"tcp:$(address_of metadata):7400\"]") ;;
            data-*) arguments+=(--set "data.listen=[\"tcp:$(address_of "$name"):0\"]") ;;
            mount) arguments=(mount "$mnt" --foreground --ready-file "$var/run/mount.ready") ;;
        esac
        rm -f "$var/run/$name.ready"
        [ "$name" = mount ] || arguments+=(--ready-file "$var/run/$name.ready")
        # Not `at_host`: what is to be killed is the program, and no shell around it.
        nsenter --net="/var/run/netns/$(net "$name")" \
            "$program" "${arguments[@]}" --set "cluster.host=$name" --config "$var/braid.toml" >>"$var/log/$name.log" 2>&1 &
        echo $! >"$var/run/$name.pid"
        for _ in $(seq 600); do [ -e "$var/run/$name.ready" ] && break; sleep 0.05; done
        [ -e "$var/run/$name.ready" ] || { tail -n 5 "$var/log/$name.log"; broken "$name does not start"; }
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
