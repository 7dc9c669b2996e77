//! A store that is filled, or that was left: a directory or a database.

use crate::config::Config;
use crate::roles;
use anyhow::{Context, Result, bail};
use braid_env::Env;
use braid_meta_engine::{Copied, Engine, EngineError};
use braid_meta_engine_embedded::EmbeddedEngine;
use braid_meta_engine_sql::{Fencing, SqlEngine, SqlOptions};
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::handover::{BeginArrival, EndArrival};
use braid_types::{MetaPosition, MetaTerm};
use std::fmt;
use std::path::PathBuf;

/// Where.
pub enum Place {
    Dir(PathBuf),
    Database(String),
}

impl Place {
    /// Where the metadata server of this configuration keeps its rows.
    pub fn of(config: &Config) -> Place {
        match config.metadata.database.is_empty() {
            true => Place::Dir(config.metadata.dir.clone()),
            false => Place::Database(config.metadata.database.clone()),
        }
    }

    /// The settings that name it, as lines of `braid.toml`; `was`: before.
    pub fn setting(&self, was: &Config) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned());
        match self {
            Place::Dir(dir) => {
                let alone =
                    if was.metadata.together_listen.is_empty() { "" } else { " and metadata.together_listen = []" };
                let dir = quoted(&dir.display().to_string());
                format!("metadata.dir = {dir} and metadata.database = \"\"{alone}")
            }
            Place::Database(url) => format!("metadata.database = {}", quoted(&braid_meta_engine_sql::hidden(url))),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Dir(dir) => write!(f, "{}", dir.display()),
            // Without its password.
            Place::Database(url) => write!(f, "{}", braid_meta_engine_sql::hidden(url)),
        }
    }
}

/// An address, or `@FILE`: so that its password is in no list of processes.
pub fn database(text: &str) -> Result<Place> {
    let Some(file) = text.strip_prefix('@') else { return Ok(Place::Database(text.to_owned())) };
    let url = std::fs::read_to_string(file).with_context(|| format!("cannot read the address in {file}"))?;
    Ok(Place::Database(url.trim().to_owned()))
}

pub async fn open_database(url: &str) -> Result<SqlEngine> {
    let options = SqlOptions { fencing: Fencing::Always, ..SqlOptions::from_url(url)? };
    SqlEngine::open(options)
        .await
        .with_context(|| format!("cannot open the metadata in {}", Place::Database(url.into())))
}

/// A directory that is there and has metadata.
pub fn open_dir(dir: &std::path::Path, config: &Config) -> Result<EmbeddedEngine> {
    if !dir.join("data.mdb").exists() {
        bail!("there is no metadata in {}", dir.display());
    }
    EmbeddedEngine::open(dir, config.metadata.engine())
        .with_context(|| format!("cannot open the metadata in {}", dir.display()))
}

/// A directory that may be new.
pub fn make_dir(dir: &std::path::Path, config: &Config) -> Result<EmbeddedEngine> {
    roles::place::for_metadata(dir)?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    EmbeddedEngine::open(dir, config.metadata.engine()).with_context(|| format!("cannot open {}", dir.display()))
}

/// A store that is filled.
pub trait Filled: Engine {
    /// Copies of it that are elsewhere, of rows that were here before, have nothing of what comes now.
    fn leave_copies(&self, env: &Env) -> Result<(), EngineError>;
}

impl Filled for SqlEngine {
    fn leave_copies(&self, _: &Env) -> Result<(), EngineError> {
        Ok(())
    }
}

impl Filled for EmbeddedEngine {
    /// The next term is above all that data servers have promised, which are counted from 1: seconds since 1970.
    fn leave_copies(&self, env: &Env) -> Result<(), EngineError> {
        let at = self.position()?;
        let seconds = u64::try_from(env.clock.wall().0 / 1_000_000_000).unwrap_or(0);
        let term = MetaTerm { counter: seconds.max(at.term.counter + 1), nonce: env.random.u64() };
        self.load(&[], MetaPosition { term, number: at.number + 1 })
    }
}

/// Between its begin and its end nobody serves the store.
pub struct Arrival<'e, E> {
    pub engine: &'e E,
    env: Env,
    by: u64,
}

impl<'e, E: Filled> Arrival<'e, E> {
    pub async fn begin(engine: &'e E, env: &Env, from: String, replaces_left: bool) -> Result<Arrival<'e, E>> {
        let by = env.random.u64();
        let begin = || BeginArrival { from: from.clone(), now: env.clock.wall(), by, replaces_left };
        engine.transact(0, begin()).await.map_err(refused)?;
        // What an older command still sends is refused from here on, and not before it is known that nobody serves these rows.
        engine.fence_others().await?;
        engine.transact(0, begin()).await.map_err(refused)?;
        engine.leave_copies(env)?;
        Ok(Arrival { engine, env: env.clone(), by })
    }

    /// All of it is there and on the disk.
    pub async fn end(self) -> Result<()> {
        let end = EndArrival { by: self.by, now: self.env.clock.wall() };
        self.engine.transact(0, end).await.map_err(refused)?;
        Ok(self.engine.settle().await?)
    }
}

pub fn refused(error: OpError) -> anyhow::Error {
    anyhow::Error::from(braid_api::Error::from(error))
}
