//! The storeys: which crate may know which, and the sentence that says why.
//!
//! A crate knows only what its row names. Dependencies for tests are free, except where a crate is to stay readable by itself.

/// A crate and what of BraidFS it may depend on.
pub struct Place {
    pub name: &'static str,
    pub knows: &'static [&'static str],
    pub rule: &'static str,
    /// The rule holds for its tests too.
    pub tests_too: bool,
}

const fn place(name: &'static str, knows: &'static [&'static str], rule: &'static str) -> Place {
    Place { name, knows, rule, tests_too: false }
}

const fn alone(name: &'static str, knows: &'static [&'static str], rule: &'static str) -> Place {
    Place { name, knows, rule, tests_too: true }
}

const GROUND: &str = "the ground storey lies below everything";
const CONTRACT: &str = "contracts know the ground storey and words of reasoning, not those who keep them";
const REASONING: &str = "reasoning is pure: it knows types and other reasoning, no I/O and no contract";
const ENGINE: &str = "an engine knows rows, not files: there is no file-system meaning in it";
const NAMESPACE: &str = "the namespace decides over rows and reaches no server, store or client";
const QUERY: &str = "queries read rows from a snapshot: no server, no wire, no engine of a kind";
const TRANSFER: &str = "rows on their way meet engines through the contract alone, and know no server and no wire";
const SERVER: &str = "servers never name each other nor the client, they meet in api over wire";
const STORE: &str = "a store keeps chunks on a disk and knows no message";
const BESIDE: &str = "who reads beside a server knows its files, and neither the store that writes them nor a message";
const CLIENT: &str = "the client meets the servers in api over wire and holds none of their code";
const DOOR: &str = "a door knows only api::FileSystem, neither the client behind it nor a server";
const KERNEL: &str = "the kernel's channel imports nothing of BraidFS";
const HANDS: &str = "the hands put everything together, but what only proves stays out of the product";
const PROOF: &str = "what proves stands above all the rest, and needs a row here for what it looks at";

pub const PLACES: &[Place] = &[
    // ground
    alone("types", &[], GROUND),
    place("env", &["types"], GROUND),
    // contracts
    place("api", &["types", "members"], CONTRACT),
    place("wire", &["types", "env", "api"], CONTRACT),
    // reasoning
    alone("placement", &["types"], REASONING),
    alone("posix", &["types"], REASONING),
    alone("chain", &["types"], REASONING),
    alone("lease", &["types", "posix"], REASONING),
    alone("copyset", &["types"], REASONING),
    alone("report", &["types"], REASONING),
    alone("erasure", &["types"], REASONING),
    alone("ownership", &["types"], REASONING),
    alone("election", &["types"], REASONING),
    alone("members", &["types", "placement", "election", "lease"], REASONING),
    // servers
    place("meta-engine", &["types"], ENGINE),
    place("meta-engine-embedded", &["types", "meta-engine"], ENGINE),
    place("meta-engine-sql", &["types", "env", "meta-engine"], ENGINE),
    place("meta-namespace", &["types", "api", "meta-engine", "members", "placement", "posix"], NAMESPACE),
    place("meta-query", &["types", "api", "meta-engine", "meta-namespace"], QUERY),
    place("meta-transfer", &["types", "api", "meta-engine", "meta-namespace"], TRANSFER),
    place(
        "meta-server",
        &[
            "types",
            "env",
            "api",
            "wire",
            "placement",
            "chain",
            "lease",
            "copyset",
            "report",
            "election",
            "members",
            "meta-engine",
            "meta-namespace",
        ],
        SERVER,
    ),
    place("local", &["types", "env"], BESIDE),
    place("data-store", &["types", "env", "local"], STORE),
    place(
        "data-server",
        &["types", "env", "api", "wire", "chain", "copyset", "report", "erasure", "ownership", "local", "data-store"],
        SERVER,
    ),
    // client
    place("client", &["types", "env", "local", "api", "wire", "posix", "lease", "placement", "erasure"], CLIENT),
    // doors
    alone("fuse-kernel", &[], KERNEL),
    place("front-fuse", &["types", "env", "api", "fuse-kernel"], DOOR),
    place("front-hdfs", &["types", "env", "api"], DOOR),
    place("front-mpiio", &["types", "env", "api"], DOOR),
    place("front-python", &["types", "env", "api"], DOOR),
    // hands
    place(
        "braid",
        &[
            "types",
            "env",
            "api",
            "wire",
            "placement",
            "posix",
            "meta-engine",
            "meta-engine-embedded",
            "meta-engine-sql",
            "meta-namespace",
            "meta-query",
            "meta-transfer",
            "meta-server",
            "data-store",
            "data-server",
            "client",
            "fuse-kernel",
            "front-fuse",
            "front-hdfs",
            "dashboard",
            "bench",
        ],
        HANDS,
    ),
    place("dashboard", &["types", "api"], HANDS),
    // proof
    place("model", &["types", "api", "posix"], PROOF),
    place(
        "sim",
        &[
            "types",
            "env",
            "api",
            "wire",
            "placement",
            "chain",
            "meta-engine",
            "meta-namespace",
            "meta-server",
            "data-store",
            "data-server",
            "client",
            "model",
        ],
        PROOF,
    ),
    place(
        "bench",
        &[
            "types",
            "env",
            "api",
            "wire",
            "client",
            "meta-engine",
            "meta-engine-embedded",
            "meta-engine-sql",
            "meta-namespace",
            "meta-server",
            "data-store",
            "data-server",
        ],
        PROOF,
    ),
    place("powercut", &["fuse-kernel"], PROOF),
    place("spec", &[], PROOF),
    alone("tidy", &[], PROOF),
];

pub fn place_of(name: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// No rows that let two crates know each other, over however many steps: the table itself points down.
    #[test]
    fn the_table_has_no_ring() {
        let mut done = BTreeSet::new();
        while done.len() < PLACES.len() {
            let ready: Vec<_> = PLACES
                .iter()
                .filter(|place| !done.contains(place.name) && place.knows.iter().all(|name| done.contains(name)))
                .map(|place| place.name)
                .collect();
            assert!(
                !ready.is_empty(),
                "these stand in a ring or without a row: {:?}",
                PLACES.iter().map(|place| place.name).filter(|name| !done.contains(name)).collect::<Vec<_>>()
            );
            done.extend(ready);
        }
    }
}
