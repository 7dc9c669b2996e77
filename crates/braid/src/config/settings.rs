//! The settings of each role. `config/default.toml` says what they mean; this file says what they are.

use super::units::{ByteSize, Span};
use braid_client::{ClientConfig, Routing};
use braid_data_server::DataServerConfig;
use braid_env::Address;
use braid_front_fuse::{KillPrivileges, LockMode, MountConfig};
use braid_meta_engine_embedded::EmbeddedOptions;
use braid_meta_server::MetaConfig;
use braid_types::Policy;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where health pages are: only for this machine, so that nobody is served who was not meant to be.
const ANY_PORT: &str = "127.0.0.1:0";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub cluster: ClusterSettings,
    pub metadata: MetadataSettings,
    pub data: DataSettings,
    pub client: ClientSettings,
    pub mount: MountSettings,
    pub log: LogSettings,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings {
    pub metadata: Vec<String>,
    pub host: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataSettings {
    pub dir: PathBuf,
    pub listen: Vec<String>,
    pub http: String,
    pub policy: String,
    pub map: ByteSize,
    pub session_lease: Span,
    pub session_renew: Span,
    pub session_expiry: Span,
    pub heartbeat: Span,
    pub server_lease: Span,
    pub housekeeping: Span,
    pub hints: usize,
    pub early_reply: bool,
    pub group_hold: Span,
    pub gather: Span,
    pub copies: usize,
    pub database: String,
    pub database_copies: usize,
    pub together_listen: Vec<String>,
    pub trash_keep: Span,
    pub report_every: Span,
    pub move_rate: ByteSize,
    pub moves_at_once: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    pub dir: PathBuf,
    pub rack: String,
    pub disk: String,
    pub listen: Vec<String>,
    pub advertise: Vec<String>,
    pub http: String,
    pub io_threads: usize,
    pub repair_rate: ByteSize,
    pub scrub_rate: ByteSize,
    pub local_reads: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSettings {
    pub write_buffer: ByteSize,
    pub retained: ByteSize,
    pub prefetch: ByteSize,
    pub prefetch_window: ByteSize,
    pub cache_entries: usize,
    pub write_back_after: Span,
    pub deadline: Span,
    pub atime: bool,
    pub local_reads: bool,
    pub local_write: bool,
    pub questions: Questions,
}

/// [`Routing`], as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Questions {
    BySlot,
    Sticky,
    InTurn,
    AtRandom,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MountSettings {
    pub threads: usize,
    pub read_ahead: ByteSize,
    pub allow_other: bool,
    pub locks: String,
    pub passthrough: bool,
    pub io_uring: bool,
    pub control: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    pub level: String,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings { metadata: vec!["tcp:127.0.0.1:7400".to_owned()], host: String::new() }
    }
}

impl Default for MetadataSettings {
    fn default() -> Self {
        let times = MetaConfig::default();
        MetadataSettings {
            dir: "/var/lib/braid/metadata".into(),
            listen: vec!["tcp:127.0.0.1:7400".to_owned()],
            http: ANY_PORT.to_owned(),
            policy: "plain".to_owned(),
            map: ByteSize(EmbeddedOptions::default().map_bytes),
            session_lease: Span(times.session_lease),
            session_renew: Span(times.session_renew),
            session_expiry: Span(times.session_expiry),
            heartbeat: Span(times.heartbeat),
            server_lease: Span(times.server_lease),
            housekeeping: Span(times.housekeeping),
            hints: times.hints_max,
            early_reply: times.early_reply,
            group_hold: Span(EmbeddedOptions::default().group_hold),
            gather: Span(times.gather),
            copies: 2,
            database: String::new(),
            database_copies: 1,
            together_listen: Vec::new(),
            trash_keep: Span(times.trash_keep),
            report_every: Span(times.report_every),
            move_rate: ByteSize(times.move_bytes_per_s),
            moves_at_once: times.moves_at_once,
        }
    }
}

impl Default for DataSettings {
    fn default() -> Self {
        let server = DataServerConfig::default();
        DataSettings {
            dir: "/var/lib/braid/data".into(),
            rack: String::new(),
            disk: String::new(),
            listen: vec!["tcp:127.0.0.1:0".to_owned()],
            advertise: Vec::new(),
            http: ANY_PORT.to_owned(),
            io_threads: 4,
            repair_rate: ByteSize(server.chain_limits.repair_bytes_per_s),
            scrub_rate: ByteSize(server.scrub_bytes_per_s),
            local_reads: true,
        }
    }
}

impl Default for ClientSettings {
    fn default() -> Self {
        let client = ClientConfig::default();
        ClientSettings {
            write_buffer: ByteSize(client.write_buffer_bytes),
            retained: ByteSize(client.retained_bytes),
            prefetch: ByteSize(client.prefetch_bytes),
            prefetch_window: ByteSize(client.prefetch_window_max),
            cache_entries: client.cache_entries,
            write_back_after: Span(client.write_back_after),
            deadline: Span(client.deadline),
            atime: client.atime,
            local_reads: client.local_reads,
            local_write: client.local_write,
            questions: Questions::BySlot,
        }
    }
}

impl Default for MountSettings {
    fn default() -> Self {
        let mount = MountConfig::default();
        MountSettings {
            threads: mount.threads,
            read_ahead: ByteSize(mount.read_ahead_bytes.into()),
            allow_other: mount.allow_other,
            locks: "servers".to_owned(),
            passthrough: mount.passthrough,
            io_uring: mount.io_uring,
            control: ANY_PORT.to_owned(),
        }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { level: "info".to_owned() }
    }
}

impl Config {
    pub fn metadata_addresses(&self) -> Vec<Address> {
        parse_addresses(&self.cluster.metadata).unwrap_or_default()
    }

    /// The machine's name: what is configured, or what the kernel says.
    pub fn host(&self) -> String {
        if self.cluster.host.is_empty() {
            rustix::system::uname().nodename().to_string_lossy().into_owned()
        } else {
            self.cluster.host.clone()
        }
    }
}

pub fn parse_addresses(list: &[String]) -> Result<Vec<Address>, String> {
    list.iter().map(|text| text.parse::<Address>().map_err(|e| e.to_string())).collect()
}

impl DataSettings {
    pub fn server(&self) -> DataServerConfig {
        let mut server = DataServerConfig { scrub_bytes_per_s: self.scrub_rate.0, ..DataServerConfig::default() };
        server.chain_limits.repair_bytes_per_s = self.repair_rate.0;
        server
    }
}

impl MetadataSettings {
    pub fn policy(&self) -> Result<Policy, String> {
        self.policy.parse().map_err(|e: braid_types::PolicyError| e.to_string())
    }

    pub fn times(&self) -> MetaConfig {
        MetaConfig {
            session_lease: self.session_lease.0,
            session_renew: self.session_renew.0,
            session_expiry: self.session_expiry.0,
            heartbeat: self.heartbeat.0,
            server_lease: self.server_lease.0,
            housekeeping: self.housekeeping.0,
            hints_max: self.hints,
            early_reply: self.early_reply,
            gather: self.gather.0,
            trash_keep: self.trash_keep.0,
            report_every: self.report_every.0,
            move_bytes_per_s: self.move_rate.0,
            moves_at_once: self.moves_at_once,
            ..MetaConfig::default()
        }
    }

    pub fn engine(&self) -> EmbeddedOptions {
        EmbeddedOptions { map_bytes: self.map.0, group_hold: self.group_hold.0, ..EmbeddedOptions::default() }
    }
}

impl ClientSettings {
    pub fn client(&self, description: String, host: String) -> ClientConfig {
        ClientConfig {
            description,
            host,
            write_buffer_bytes: self.write_buffer.0,
            retained_bytes: self.retained.0,
            prefetch_bytes: self.prefetch.0,
            prefetch_window_max: self.prefetch_window.0,
            cache_entries: self.cache_entries,
            write_back_after: self.write_back_after.0,
            deadline: self.deadline.0,
            atime: self.atime,
            local_reads: self.local_reads,
            local_write: self.local_write,
            routing: match self.questions {
                Questions::BySlot => Routing::BySlot,
                Questions::Sticky => Routing::Sticky,
                Questions::InTurn => Routing::InTurn,
                Questions::AtRandom => Routing::AtRandom,
            },
            ..ClientConfig::default()
        }
    }
}

impl MountSettings {
    pub fn mount(&self, source: String, read_only: bool) -> MountConfig {
        MountConfig {
            source,
            read_only,
            allow_other: self.allow_other,
            threads: self.threads,
            read_ahead_bytes: self.read_ahead.0 as u32,
            locks: if self.locks == "kernel" { LockMode::Kernel } else { LockMode::FileSystem },
            kill_privileges: KillPrivileges::default(),
            passthrough: self.passthrough,
            io_uring: self.io_uring,
            ..MountConfig::default()
        }
    }
}
