//! Times and sizes of a simulated cluster: those of a real one, divided so that seconds show what hours would.

use crate::bug::Bug;
use crate::env::Word;
use crate::machine::{Machine, Role};
use braid_chain::Limits;
use braid_client::ClientConfig;
use braid_data_server::DataServerConfig;
use braid_meta_server::MetaConfig;
use braid_types::{Layout, Policy};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    pub meta: MetaConfig,
    pub data: DataServerConfig,
    /// Of the root directory. Small chunks and small inline files, so that few bytes meet every case.
    pub policy: Policy,
    /// Its deadline is longer than any fault lasts, so that no operation may fail for one.
    pub client: ClientConfig,
    /// Sessions of living clients may end: longer pauses than they are waited for.
    pub sessions_end: bool,
    /// No session of a living client may end, and each that does is a failure: it waited for itself, or was not waited for.
    pub sessions_last: bool,
    /// Of [`Machine::ALL`], the first so many are there.
    pub machines: usize,
    /// And three metadata servers serve at once, over a database that does not go.
    pub several: bool,
    /// Native clients keep what they ask and are answered early. Not where clients die: a client and the server that die
    /// in one moment lose changes, which no order of operations explains.
    pub native_early: bool,
    /// Now and then a change is held up on its way to a data server until its client has sent it again and gone on.
    pub late_copies: bool,
    /// What is held up may come when its session has ended, and who sent it hears nothing meanwhile instead of sending it again at once: one
    /// that stands still then never does.
    pub very_late: bool,
    /// The same of what data servers tell each other.
    pub late_words: bool,
    /// No data server is stopped before every chain of the one that was stopped last has been taken over: then what was answered
    /// and not synced must be there too.
    pub one_at_a_time: bool,
    /// The first client is on the host of the first data server, the second on that of the second: what they write is to be owned there.
    pub beside: bool,
    /// There is one client more, on the host of the third data server.
    pub third_client: bool,
    /// So it is, and each reads its files.
    pub local_reads: bool,
    /// Machines that stop at messages do so before or after this word, and nowhere else.
    pub stops_at: Option<Word>,
    /// Data servers are drained and evened out meanwhile.
    pub operator: bool,
    /// Snapshots of the root directory are made and let go of meanwhile.
    pub snapshots: bool,
    pub bug: Option<Bug>,
}

impl Default for Settings {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Settings {
            meta: MetaConfig {
                session_lease: ms(3000),
                session_renew: ms(1000),
                session_expiry: ms(20_000),
                heartbeat: ms(300),
                server_lease: ms(1000),
                housekeeping: ms(250),
                hints_max: 256,
                chunk_reserve_bytes: 1 << 20,
                data_deadline: ms(1000),
                early_reply: true,
                // As long as a session: none of a living client may be given up.
                gather: ms(20_000),
                ..MetaConfig::default()
            },
            data: DataServerConfig { scrub_bytes_per_s: 1 << 20, scrub_pause: ms(5000), ..DataServerConfig::default() },
            policy: Policy { chunk_bytes: 1 << 20, inline_bytes: 4096, ..Policy::PLAIN },
            client: ClientConfig {
                write_buffer_bytes: 2 << 20,
                file_buffer_bytes: 1 << 20,
                retained_bytes: 1 << 20,
                prefetch_bytes: 1 << 20,
                prefetch_window_min: 16 << 10,
                prefetch_window_max: 256 << 10,
                cache_entries: 64,
                write_back_after: ms(300),
                stabilise_after: ms(700),
                deadline: ms(30_000),
                attempt: ms(3000),
                spares_ahead: 4,
                atime_after: ms(1000),
                ..ClientConfig::default()
            },
            sessions_end: false,
            sessions_last: false,
            machines: 6,
            several: false,
            native_early: true,
            late_copies: false,
            very_late: false,
            late_words: false,
            one_at_a_time: false,
            beside: false,
            third_client: false,
            local_reads: false,
            stops_at: None,
            operator: false,
            snapshots: false,
            bug: None,
        }
    }
}

impl Settings {
    /// No session of a living client ends: its lease is longer than any fault lasts.
    pub fn with_long_sessions() -> Settings {
        let mut settings = Settings { sessions_last: true, ..Settings::default() };
        settings.meta.session_lease = Duration::from_millis(12_000);
        settings
    }

    /// Sessions end soon after their lease, so that living clients lose theirs.
    pub fn with_short_sessions() -> Settings {
        Settings::default().and_short_sessions()
    }

    pub fn and_short_sessions(mut self) -> Settings {
        self.sessions_end = true;
        self.meta.session_expiry = Duration::from_millis(4000);
        self.meta.gather = Duration::from_millis(4000);
        self
    }

    /// The same with several copies.
    pub fn with_copies_and_long_sessions(copies: u8) -> Settings {
        Settings::with_copies(copies).and_long_sessions()
    }

    pub fn and_long_sessions(mut self) -> Settings {
        self.sessions_last = true;
        self.meta.session_lease = Duration::from_millis(12_000);
        self
    }

    /// Chunks have `copies` copies on four data servers. The times of chains are divided like all others: a lease of 4 s
    /// is one of 1 s here, and a small file meets the bounds that a large one does.
    pub fn with_copies(copies: u8) -> Settings {
        let ms = Duration::from_millis;
        let mut settings = Settings { machines: 7, ..Settings::default() };
        // A storm of 12 s and the 20 s for which a start of the metadata server at its end waits for dead clients.
        settings.client.deadline = ms(40_000);
        settings.policy.layout = Layout::Replica { copies };
        let limits = Limits {
            server_lease: ms(1000),
            renew: ms(250),
            successor: ms(1500),
            session_lease: ms(3000),
            call_deadline: ms(15_000),
            quiet: ms(50),
            announce_age: ms(250),
            announce_blocks: 64,
            resend: ms(100),
            silent: ms(600),
            move_wait: ms(300),
            move_hold: ms(60),
            move_calm: ms(8000),
            shun: ms(4000),
            room_pause: ms(200),
            full: ms(2000),
            sync_every: ms(300),
            pull_blocks: 16,
            repair_bytes_per_s: 8 << 20,
            move_bytes_per_s: 8 << 20,
            repair_at_once: 2,
            groups_max: 8,
            lineage_max: 8,
        };
        settings.meta.chain_limits = limits.clone();
        settings.data.chain_limits = limits;
        settings
    }

    /// The same, few enough that some chunk has none beside its writer, to whom it is brought soon.
    pub fn with_copies_beside(copies: u8) -> Settings {
        let mut settings = Settings { beside: true, ..Settings::with_copies(copies) };
        settings.client.bring_after_percent = 2;
        settings
    }

    /// The same while data servers are drained and evened out: slowly enough for faults to come in between.
    pub fn with_operator(copies: u8) -> Settings {
        let mut settings = Settings { operator: true, ..Settings::with_copies(copies) };
        settings.meta.move_bytes_per_s = 512 << 10;
        settings.meta.moves_at_once = 2;
        settings.meta.rebalance_least_bytes = 16 << 10;
        settings
    }

    /// The same with one copy of each chunk, which a client moves from server to server.
    pub fn with_operator_and_one_copy() -> Settings {
        let plain = Settings::default().policy.layout;
        let mut settings = Settings::with_operator(2);
        settings.policy.layout = plain;
        settings
    }

    /// Clients are on the hosts of data servers.
    pub fn is_beside(&self) -> bool {
        self.beside || self.local_reads
    }

    pub fn has_copies(&self) -> bool {
        self.policy.chain_len() > 1
    }

    pub fn machines(&self) -> Vec<Machine> {
        let more = if self.several { &Machine::METAS[1..] } else { &[] };
        let third = self.third_client.then_some(Machine::Client3);
        Machine::ALL[..self.machines].iter().chain(more).copied().chain(third).collect()
    }

    /// Three metadata servers; nothing is answered early.
    pub fn with_several(mut self) -> Settings {
        self.several = true;
        self.native_early = false;
        self
    }

    /// The clients among them.
    pub fn clients(&self) -> usize {
        self.machines().into_iter().filter(|machine| machine.role() == Role::Client).count()
    }

    /// The data servers among them.
    pub fn data(&self) -> Vec<Machine> {
        self.machines().into_iter().filter(|machine| machine.role() == Role::Data).collect()
    }
}
