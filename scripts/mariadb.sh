# A MariaDB of a script's own, in a directory, reached by a socket there. Source it after lib.sh.
# Needs: apt-get install -y mariadb-server-core mariadb-client-core
# shellcheck shell=bash

mariadb_user=()
[ "$(id -u)" -ne 0 ] || mariadb_user=(--user=root)

make_mariadb() { # directory
    mkdir -p "$1"
    TMPDIR=$1 mariadb-install-db --no-defaults --auth-root-authentication-method=normal --skip-test-db "${mariadb_user[@]}" \
        --datadir="$1/data" >"$1/log" 2>&1 || die "mariadb-install-db: $(tail -n 3 "$1/log")"
}

# Returns when it answers.
run_mariadb() { # directory, options...
    local dir=$1
    shift
    rm -f "$dir/sock"
    TMPDIR=$dir mariadbd --no-defaults --skip-networking "${mariadb_user[@]}" --datadir="$dir/data" --socket="$dir/sock" \
        --pid-file="$dir/pid" "$@" </dev/null >>"$dir/log" 2>&1 &
    disown
    for _ in $(seq 300); do
        if [ -S "$dir/sock" ] && mariadb --no-defaults -u root -S "$dir/sock" -e "select 1" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    die "mariadbd does not listen: $(tail -n 3 "$dir/log")"
}

mariadb_url() { # directory, database
    printf 'mysql://root@%s/%s' "$(printf %s "$1/sock" | sed 's,/,%2F,g')" "$2"
}

# Returns when it has gone, also where there was none.
end_mariadb() { # directory
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 300); do
        is_process "$pid" || return 0
        sleep 0.1
    done
}
