//! How a data server comes to its id, and shows that it lives.

use crate::DataServer;
use crate::core::Core;
use braid_api::meta::{Heartbeat, Namespace, RegisterAnswer, RegisterServer};
use braid_api::{Code, Context, Error, Result, Retry};
use braid_chain::held_of;
use braid_data_store::{StoreIdentity, StoreUsage};
use braid_env::{Env, Monotonic, TaskHandle};
use braid_types::ServerId;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An answer that takes longer is not waited for: the next attempt may find another server.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a data server tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Where clients find it, the best first.
    pub addresses: Vec<String>,
    /// Name of the machine.
    pub host: String,
    /// Where it stands; empty: nobody said.
    pub rack: String,
    /// Servers of this host which say the same are on one disk; empty: those on one file system are.
    pub disk: String,
    /// The last stop was a clean one.
    pub clean_stop: bool,
}

impl Announcement {
    fn message(&self, id: ServerId, incarnation: u64) -> RegisterServer {
        let Announcement { addresses, host, rack, clean_stop, .. } = self.clone();
        RegisterServer { id, incarnation, addresses, host, clean_stop, rack }
    }

    /// The number of its disk. A name's has the highest bit, which a file system's number does not have (`st_dev`), and is FNV-1a: servers
    /// of other builds find the same.
    fn disk(&self, filesystem: u64) -> u64 {
        match self.disk.as_bytes() {
            [] => filesystem,
            name => {
                name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
                }) | 1 << 63
            }
        }
    }
}

/// The very first start: asks the metadata server for an id, for as long as it takes, and returns what is to be
/// written into the data directory (`DiskStore::create` does). With the identity of an existing directory it asks
/// nothing. Fails only if the metadata server says that it will never do.
///
/// An id whose answer was lost is never used: the next attempt gets another.
pub async fn enrol<N: Namespace>(
    env: &Env,
    namespace: &N,
    known: Option<StoreIdentity>,
    announcement: &Announcement,
) -> Result<StoreIdentity> {
    if let Some(known) = known {
        return Ok(known);
    }
    let incarnation = env.random.u64().max(1);
    let mut failures = 0;
    loop {
        match namespace.call(context(), announcement.message(ServerId(0), incarnation)).await {
            Ok(RegisterAnswer { id, cluster, .. }) => return Ok(StoreIdentity { cluster, server: id }),
            Err(error) if error.retry() == Retry::No => return Err(error),
            Err(error) => {
                tracing::warn!("no metadata server gives this data server an id yet: {error}");
                failures += 1;
                env.sleep(pause(env, failures)).await;
            }
        }
    }
}

impl DataServer {
    /// Registers with the metadata server, sends signs of life as often as it asks for, and registers again when it
    /// is told to; until it has heard which sessions live, it refuses what sessions ask for. Goes on until the server is dropped; the handle ends it sooner. `namespace` should have a
    /// connection of its own, so that signs of life never queue behind anything.
    pub fn report_to<N: Namespace>(self: &Arc<Self>, namespace: Arc<N>, announcement: Announcement) -> TaskHandle {
        // Before anything is served: a start knows nothing of the sessions that have ended.
        self.0.gate.await_sessions();
        let (env, core) = (self.0.env.clone(), Arc::downgrade(&self.0));
        env.clone().spawn("heartbeats", async move {
            let mut reporter =
                Reporter { env, core, namespace, announcement, every: None, lives_for: Duration::ZERO, failures: 0 };
            while let Some(pause) = reporter.report().await {
                reporter.env.sleep(pause).await;
            }
        })
    }
}

struct Reporter<N> {
    env: Env,
    core: Weak<Core>,
    namespace: Arc<N>,
    announcement: Announcement,
    /// Between heartbeats; `None` while not registered.
    every: Option<Duration>,
    /// So long at least, on this clock, the metadata server takes this server to live after a sign of life.
    lives_for: Duration,
    /// In a row.
    failures: u32,
}

impl<N: Namespace> Reporter<N> {
    /// One message, and the pause before the next; `None` when the server is gone.
    async fn report(&mut self) -> Option<Duration> {
        let core = self.core.upgrade()?;
        let sent = match self.every {
            None => self.register(&core).await,
            Some(every) => self.beat(&core, every).await,
        };
        core.registered.store(self.every.is_some() && sent.is_ok(), Relaxed);
        match sent {
            Ok(pause) => {
                if self.failures > 0 {
                    tracing::info!("data server {}: in touch with the metadata server again", core.id);
                }
                self.failures = 0;
                Some(pause)
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!("data server {}: out of touch with the metadata server: {error}", core.id);
                }
                self.failures += 1;
                let pause = pause(&self.env, self.failures);
                Some(self.every.map_or(pause, |every| pause.min(every)))
            }
        }
    }

    async fn register(&mut self, core: &Core) -> Result<Duration> {
        let message = self.announcement.message(core.id, core.incarnation);
        let asked = self.env.clock.now();
        let answer: RegisterAnswer = self.namespace.call(context(), message).await?;
        let RegisterAnswer { id, cluster, heartbeat_ms, sessions, sync_floor, lease_ms, epoch, leads_for_ms } = answer;
        if (id, cluster) != (core.id, core.cluster) {
            let subject = format_args!("data server {} of cluster {}", core.id, core.cluster);
            let cause = format_args!("was registered as {id} of {cluster}");
            return Err(Error::new(Code::WrongCluster, subject, cause));
        }
        core.gate.raise_sync_floor(sync_floor);
        core.gate.hears_of(epoch, until(asked, leads_for_ms));
        self.lives_for = held_of(Duration::from_millis(lease_ms.into()));
        // Signs of life go on meanwhile: what is being applied may wait for a disk.
        self.env.spawn("what ended sessions had sent", core.gate.learn(sessions));
        core.gate.heard(Monotonic(asked.0 + self.lives_for));
        // Of those that have ended while it was out of touch no fence comes any more.
        core.regions.end_unless(|session| core.gate.may_live(session));
        core.chains.registered();
        let every = Duration::from_millis(u64::from(heartbeat_ms.max(1)));
        self.every = Some(every);
        // At once: nothing is placed here before the metadata server knows the room.
        Ok(Duration::ZERO)
    }

    async fn beat(&mut self, core: &Core, every: Duration) -> Result<Duration> {
        // A disk that does not answer in time must not make the server look dead; it shows in other ways.
        let usage = match self.env.timeout(every, core.look_at_usage()).await {
            Ok(Ok(usage)) => usage,
            // One that answers with errors has no room for anybody.
            Ok(Err(_)) => StoreUsage { free_bytes: 0, ..*core.usage.lock() },
            Err(_) => *core.usage.lock(),
        };
        let message = Heartbeat {
            id: core.id,
            incarnation: core.incarnation,
            disk: self.announcement.disk(usage.disk),
            filesystem: usage.disk,
            bytes_total: usage.total_bytes,
            bytes_free: usage.free_bytes,
            chunks: usage.chunks,
            bad_blocks: usage.bad_blocks,
            sealed_blocks: usage.sealed_blocks,
        };
        // The metadata server counts from when this arrives, which is later.
        let asked = self.env.clock.now();
        let answer = self.namespace.call(context(), message).await?;
        if answer.register_again {
            self.every = None;
            return Ok(Duration::ZERO);
        }
        core.gate.heard(Monotonic(asked.0 + self.lives_for));
        core.gate.hears_of(answer.epoch, until(asked, answer.leads_for_ms));
        core.chains.move_rate(answer.move_bytes_per_s);
        // From one to the next as it is sent, however long the answer takes.
        Ok(every.saturating_sub(self.env.clock.now().since(asked)))
    }
}

/// Counted from when it was asked for, which is before it was true. `None`: without an end.
fn until(asked: Monotonic, leads_for_ms: u32) -> Option<Monotonic> {
    (leads_for_ms != u32::MAX).then(|| Monotonic(asked.0 + Duration::from_millis(leads_for_ms.into())))
}

fn context() -> Context {
    Context { deadline: CALL_DEADLINE, ..Context::default() }
}

/// Doubles with every failure; drawn from the upper half, so that servers that lost the same peer do not all come
/// back in the same moment.
fn pause(env: &Env, failures: u32) -> Duration {
    let full = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(PAUSE_MAX);
    let half = full / 2;
    half + Duration::from_nanos(env.random.below(half.as_nanos() as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_the_number_of_its_name_or_of_its_file_system() {
        let named = |name: &str| Announcement { disk: name.to_owned(), ..Announcement::default() };
        assert_eq!((named("").disk(0), named("").disk(65_025)), (0, 65_025));
        assert_eq!(named("a").disk(1), named("a").disk(2));
        assert_ne!(named("a").disk(1), named("b").disk(1));
        // As other builds find it: FNV-1a of "a" has its highest bit set already.
        assert_eq!(named("a").disk(1), 0xaf63_dc4c_8601_ec8c);
    }
}
