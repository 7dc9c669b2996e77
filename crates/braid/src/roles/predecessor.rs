//! The client that a mount replaces: told dead, it is not waited for.
//!
//! A mount's session says which process of which machine it is of. Whoever mounts at the same place can tell that this
//! process has gone, long before the metadata server would take its silence for its end: after a crash of the metadata
//! server nobody then waits for what only that process kept.

use crate::local::process;
use braid_api::admin::{AdminAnswer, SessionStatus};
use braid_api::meta::{AdminQuery, EndSession};
use braid_api::{Context, Namespace, Result};
use braid_types::Token;
use std::path::Path;
use std::time::Duration;

/// What a mount says of itself. Process numbers mean something within one start of a kernel and one name space of
/// processes, so both are named.
pub fn description(mount_point: &Path) -> String {
    format!("{}{} {}", beginning(mount_point), std::process::id(), machine())
}

fn beginning(mount_point: &Path) -> String {
    format!("mount {} by process ", mount_point.display())
}

fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let names = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("(boot {}, {})", boot.trim(), names.display())
}

/// Where a session that describes itself so is mounted, and by which process.
pub fn mount_of(description: &str) -> Option<(&str, u32)> {
    let (place, rest) = description.strip_prefix("mount ")?.rsplit_once(" by process ")?;
    let process = rest.split(' ').next()?.parse().ok()?;
    Some((place, process))
}

/// It is of this machine, and of this name space of processes.
pub fn is_here(description: &str) -> bool {
    description.ends_with(&machine())
}

/// Sessions of mounts at the same place of this machine whose process has gone.
fn gone(sessions: Vec<SessionStatus>, mount_point: &Path, is_alive: impl Fn(u32) -> bool) -> Vec<SessionStatus> {
    let (beginning, machine) = (beginning(mount_point), machine());
    let has_gone = |session: &SessionStatus| {
        let rest = session.description.strip_prefix(&beginning)?.strip_suffix(&machine)?;
        let process: u32 = rest.trim_end().parse().ok()?;
        Some(!is_alive(process))
    };
    sessions.into_iter().filter(|session| has_gone(session) == Some(true)).collect()
}

/// One that has ended and was not waited for by its parent yet has gone all the same.
fn is_alive(pid: u32) -> bool {
    !matches!(process::state(pid), Some('Z' | 'X') | None)
}

/// How long the end of one may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends the sessions of clients that this mount replaces. The first answer is waited for for `patience`.
pub async fn end(namespace: &impl Namespace, mount_point: &Path, patience: Duration) -> Result<()> {
    let cx = Context { deadline: patience, ..Context::default() };
    let AdminAnswer::Sessions(sessions) = namespace.call(cx, AdminQuery::Sessions).await? else { return Ok(()) };
    for session in gone(sessions, mount_point, is_alive) {
        tracing::info!(session = session.session.0, "ends the session of the client that this one replaces");
        let token = Token { session: session.session, session_epoch: session.epoch, ..Token::default() };
        namespace.call(Context { token, deadline: PATIENCE, ..cx }, EndSession {}).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{SessionEpoch, SessionId};

    #[test]
    fn a_process_that_nobody_has_waited_for_has_gone() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let begun = std::time::Instant::now();
        while is_alive(child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(10), "it has ended long ago");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn a_description_tells_place_and_process() {
        let own = description(Path::new("/mnt/a by process 5"));
        assert_eq!(mount_of(&own), Some(("/mnt/a by process 5", std::process::id())));
        assert!(is_here(&own) && !is_here("mount /mnt/a by process 7 (boot another, pid:[1])"));
        assert_eq!(mount_of("mount /mnt/a by process 7"), Some(("/mnt/a", 7)));
        assert_eq!(mount_of("fs put by process 7"), None);
    }

    #[test]
    fn only_a_dead_process_of_the_same_place_and_machine_is_replaced() {
        let here = Path::new("/mnt/a");
        let session = |id, description: String| SessionStatus {
            session: SessionId(id),
            epoch: SessionEpoch(1),
            description,
            host: "h".into(),
            silent_ms: 0,
        };
        let sessions = vec![
            session(1, format!("mount /mnt/a by process 7 {}", machine())),
            session(2, format!("mount /mnt/a by process 8 {}", machine())),
            session(3, format!("mount /mnt/ab by process 7 {}", machine())),
            session(4, "mount /mnt/a by process 7 (boot another, pid:[1])".into()),
            session(5, "fs put by process 7".into()),
            session(6, "mount /mnt/a by process 7".into()),
        ];
        let found = gone(sessions, here, |process| process == 8);
        assert_eq!(found.iter().map(|session| session.session.0).collect::<Vec<_>>(), [1]);
        assert!(gone(vec![session(1, description(here))], here, |process| process == std::process::id()).is_empty());
    }
}
