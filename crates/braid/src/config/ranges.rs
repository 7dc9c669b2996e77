//! What each setting may be, and what no single one shows: the inequalities between times.
//!
//! Promises: whatever passes is a setting the program works with; what does not is told with the setting's name and its
//! range.

use super::settings::{Config, parse_addresses};
use super::units::{ByteSize, Span};
use std::fmt::Display;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// A setting that cannot be, by its name, and why.
#[derive(Debug)]
pub struct Bad {
    pub setting: &'static str,
    why: String,
}

impl Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.setting, self.why)
    }
}

fn bad<T>(setting: &'static str, why: impl Display) -> Result<T, Bad> {
    Err(Bad { setting, why: why.to_string() })
}

/// One row a setting: its name, what it is, the least and the most it may be.
fn within<T: PartialOrd + Display>(rows: impl IntoIterator<Item = (&'static str, T, T, T)>) -> Result<(), Bad> {
    for (setting, value, least, most) in rows {
        if value < least || value > most {
            return bad(setting, format!("{value} is out of its range, {least} to {most}"));
        }
    }
    Ok(())
}

impl Config {
    pub fn check(&self) -> Result<(), Bad> {
        let Config { cluster, metadata, data, client, mount, log } = self;
        let size = |name, value: ByteSize, least, most| (name, value, ByteSize(least), ByteSize(most));
        within([
            size("metadata.map", metadata.map, 4 * MIB, 64 * TIB),
            size("metadata.move_rate", metadata.move_rate, MIB / 16, TIB),
            size("data.repair_rate", data.repair_rate, MIB, TIB),
            size("data.scrub_rate", data.scrub_rate, 0, TIB),
            size("client.write_buffer", client.write_buffer, MIB, TIB),
            size("client.retained", client.retained, MIB, TIB),
            size("client.prefetch", client.prefetch, MIB, TIB),
            size("client.prefetch_window", client.prefetch_window, MIB / 4, GIB),
            size("mount.read_ahead", mount.read_ahead, 0, GIB),
        ])?;
        let (ms, hours) = (Duration::from_millis, |hours: u64| Duration::from_secs(hours * 3_600));
        let span = |name, value: Span, least, most| (name, value, Span(least), Span(most));
        within([
            span("metadata.session_lease", metadata.session_lease, ms(300), hours(1)),
            span("metadata.session_renew", metadata.session_renew, ms(100), hours(1)),
            span("metadata.session_expiry", metadata.session_expiry, ms(300), hours(24 * 30)),
            span("metadata.heartbeat", metadata.heartbeat, ms(50), hours(1)),
            span("metadata.server_lease", metadata.server_lease, ms(150), hours(1)),
            span("metadata.housekeeping", metadata.housekeeping, ms(10), ms(60_000)),
            span("metadata.group_hold", metadata.group_hold, ms(0), ms(10_000)),
            span("metadata.gather", metadata.gather, ms(0), hours(1)),
            span("metadata.trash_keep", metadata.trash_keep, ms(0), hours(24 * 3650)),
            span("metadata.report_every", metadata.report_every, ms(0), hours(24 * 30)),
            span("client.write_back_after", client.write_back_after, ms(10), hours(1)),
            span("client.deadline", client.deadline, ms(1_000), hours(24)),
        ])?;
        within([
            ("metadata.hints", metadata.hints, 1_000, 1_000_000_000),
            ("metadata.copies", metadata.copies, 0, 16),
            ("metadata.database_copies", metadata.database_copies, 1, 16),
            ("metadata.moves_at_once", metadata.moves_at_once, 1, 1_024),
            ("data.io_threads", data.io_threads, 1, 1_024),
            ("client.cache_entries", client.cache_entries, 1_000, 1_000_000_000),
            ("mount.threads", mount.threads, 1, 64),
        ])?;
        for (setting, dir) in [("metadata.dir", &metadata.dir), ("data.dir", &data.dir)] {
            if dir.as_os_str().is_empty() {
                return bad(setting, "it names no directory");
            }
        }
        for (setting, list, may_be_empty) in [
            ("cluster.metadata", &cluster.metadata, false),
            ("metadata.listen", &metadata.listen, false),
            ("metadata.together_listen", &metadata.together_listen, true),
            ("data.listen", &data.listen, false),
            ("data.advertise", &data.advertise, true),
        ] {
            if let Err(why) = parse_addresses(list) {
                return bad(setting, why);
            }
            if list.is_empty() && !may_be_empty {
                return bad(setting, "it needs an address, e.g. [\"tcp:10.0.0.1:7400\"]");
            }
        }
        let is_anywhere =
            |at: &&String| ["tcp:0.0.0.0:", "tcp:[::]:", "tcp:[::0]:"].iter().any(|all| at.starts_with(all));
        if let Some(at) = metadata.together_listen.iter().find(is_anywhere) {
            return bad(
                "metadata.together_listen",
                format!("{at:?} is no address at which others reach this one alone"),
            );
        }
        if !metadata.together_listen.is_empty() && metadata.database.is_empty() {
            return bad(
                "metadata.together_listen",
                "several metadata servers can serve only over a database (metadata.database)",
            );
        }
        if let Some(twice) = metadata.together_listen.iter().find(|at| metadata.listen.contains(at)) {
            return bad(
                "metadata.together_listen",
                format!("{twice:?} is in metadata.listen, where only the one that leads listens"),
            );
        }
        for (setting, at) in
            [("metadata.http", &metadata.http), ("data.http", &data.http), ("mount.control", &mount.control)]
        {
            if !at.is_empty() && port(at).is_none() {
                return bad(
                    setting,
                    format!("{at:?} is not host:port, e.g. \"127.0.0.1:7480\"; port 0 is any free one"),
                );
            }
        }
        if !is_name(&cluster.host) {
            return bad("cluster.host", format!("{:?} is no name of a machine", cluster.host));
        }
        if !is_name(&data.rack) {
            return bad("data.rack", format!("{:?} is no name of a rack", data.rack));
        }
        if !is_name(&data.disk) {
            return bad("data.disk", format!("{:?} is no name of a disk", data.disk));
        }
        metadata.policy().or_else(|why| bad("metadata.policy", why))?;
        metadata.times().check().or_else(|why| bad("metadata", why))?;
        match mount.locks.as_str() {
            "servers" | "kernel" => {}
            other => return bad("mount.locks", format!("{other:?} is neither \"servers\" nor \"kernel\"")),
        }
        log_level(&log.level).or_else(|why| bad("log.level", why))
    }
}

/// As DNS has it.
pub const NAME_MAX: usize = 253;

/// May be the name of a machine, a rack or a disk; none at all may.
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX && !name.chars().any(|ch| ch.is_control() || ch.is_whitespace())
}

/// The port of `host:port`.
pub fn port(at: &str) -> Option<u16> {
    let (host, port) = at.rsplit_once(':')?;
    if host.is_empty() || host.chars().any(char::is_whitespace) {
        return None;
    }
    port.parse().ok()
}

/// A level, and levels of single crates: `info,braid_client=debug`. The filter itself takes any word for the name of a crate,
/// and then nothing is logged.
pub fn log_level(text: &str) -> Result<(), String> {
    let is_level =
        |word: &str| ["off", "error", "warn", "info", "debug", "trace"].contains(&word.to_ascii_lowercase().as_str());
    let wrong = text.split(',').map(str::trim).find(|part| {
        let (target, level) = part.rsplit_once('=').unwrap_or(("any", part));
        !is_level(level) || target.is_empty()
    });
    match wrong {
        Some(part) => Err(format!("{part:?} is not off, error, warn, info, debug or trace, nor CRATE=debug")),
        None => tracing_subscriber::EnvFilter::try_new(text).map(drop).map_err(|e| format!("{text:?}: {e}")),
    }
}
