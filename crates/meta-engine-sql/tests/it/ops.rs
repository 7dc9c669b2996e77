//! Operations that several tests need.

use braid_meta_engine::conformance::{Script, ScriptError, Step};
use braid_meta_engine::{Engine, EngineError, Key, Lock, Operation, Row, Table, Tx};

pub fn key(partition: u64, rest: &str) -> Key {
    Key::new(Table::Inodes, partition, rest.as_bytes())
}

/// Counts a row up, and tells what it is then.
#[derive(Clone)]
pub struct Count(pub Key);

impl Operation for Count {
    type Output = u64;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, EngineError> {
        let rows = tx.get(std::slice::from_ref(&self.0), Lock::Exclusive).await?;
        let count = number(&rows[0]) + 1;
        tx.put(self.0.clone(), count.to_be_bytes().to_vec());
        Ok(count)
    }
}

/// As of a leader that fences others.
pub struct Sign(pub Count);

impl Operation for Sign {
    type Output = u64;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, EngineError> {
        self.0.run(tx).await
    }

    fn outlives_its_epoch(&self) -> bool {
        true
    }
}

pub fn number(row: &Option<Row>) -> u64 {
    row.as_ref().and_then(|row| row.as_slice().try_into().ok()).map_or(0, u64::from_be_bytes)
}

pub async fn steps<E: Engine>(engine: &E, steps: Vec<Step>) -> Result<(), ScriptError> {
    engine.transact(0, Script(steps)).await.map(drop)
}

pub async fn put<E: Engine>(engine: &E, key: &Key, row: &[u8]) {
    steps(engine, vec![Step::Put(key.clone(), row.to_vec())]).await.expect("it commits");
}

pub async fn row<E: Engine>(engine: &E, key: &Key) -> Option<Row> {
    let get = Script(vec![Step::Get(vec![key.clone()], Lock::None)]);
    engine.read(0, get).await.expect("it reads").remove(0).rows().remove(0)
}
