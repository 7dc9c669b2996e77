//! The engines below a server.

use super::{MetaConfig, Peers, World};
use braid_meta_engine::{AnyEngine, MemEngine, MemStore};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_engine_sql::SqlEngine;
use std::sync::Arc;
use tempfile::TempDir;

#[path = "../../../../meta-engine-sql/tests/it/server.rs"]
pub mod mariadb;

#[derive(Clone)]
pub enum Rows {
    Memory(MemStore),
    Directory(Arc<TempDir>),
    /// A database of this name in the tests' MariaDB.
    Database(String),
}

impl Rows {
    /// A server on them.
    pub async fn world(&self, config: MetaConfig) -> World {
        let engine = match self {
            Rows::Memory(store) => AnyEngine::new(Arc::new(MemEngine::new(store.clone()))),
            Rows::Directory(dir) => {
                AnyEngine::new(Arc::new(EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).unwrap()))
            }
            Rows::Database(name) => {
                AnyEngine::new(Arc::new(SqlEngine::open(mariadb::shared().options(name)).await.unwrap()))
            }
        };
        World::over(engine, MemStore::new(), Peers::default(), config, 1).await
    }
}

/// These tests on each engine.
#[macro_export]
macro_rules! on_every_engine {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::common::rows::Rows::Memory(Default::default())).await;
            })*
        }
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
                super::$name($crate::common::rows::Rows::Directory(dir)).await;
            })*
        }
        mod sql {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::common::rows::Rows::Database($crate::common::rows::mariadb::database())).await;
            })*
        }
    };
}
