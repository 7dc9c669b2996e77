use super::script::{Script, Step, key, row, whole_table};
use crate::{Engine, Table};

/// Transactions whose survival can be judged after a crash: each writes several rows of its number, so that a
/// torn one shows, and numbers follow the order, so that a gap shows.
#[derive(Clone, Copy, Debug)]
pub struct Ledger;

const ROWS_EACH: usize = 5;

impl Ledger {
    /// The transaction of this number.
    pub fn entry(number: u64) -> Script {
        let one = |n| Step::Insert(key(number, &format!("{n}")), row("entry"));
        Script((0..ROWS_EACH).map(one).collect())
    }

    /// What is wrong with the rows left by transactions 0, 1, 2 … in this order, of which the first
    /// `acknowledged` were answered. Otherwise how many survived.
    pub async fn check<E: Engine>(engine: &E, acknowledged: u64) -> Result<u64, String> {
        let found = whole_table(engine, Table::Inodes).await;
        let survived = found.len().div_ceil(ROWS_EACH) as u64;
        let expected = (0..survived).flat_map(|number| (0..ROWS_EACH).map(move |n| key(number, &format!("{n}"))));
        if !found.iter().map(|(key, _)| key.clone()).eq(expected) {
            return Err(format!("what survived is torn or has gaps: {found:?}"));
        }
        if survived < acknowledged {
            return Err(format!("{acknowledged} transactions were acknowledged and {survived} survived"));
        }
        Ok(survived)
    }
}
