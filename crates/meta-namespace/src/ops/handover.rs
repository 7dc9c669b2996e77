//! Rows that go from one store to another: what keeps anybody from serving them in two places, or where they are not whole.
//!
//! The store that is filled says so from before its first row on, and the other one says where they have gone before the first says
//! that they are here. So at every moment at most one may be served, and who is interrupted goes on with the same command.

use super::ids::{Counter, go_on_from};
use super::restored::leap;
use crate::rows::{HandoverRow, RowFormat, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::Timestamp;

/// Rows that stay where they are: of the servers over this store, not of the namespace.
pub fn stays(key: &Key) -> bool {
    key.table() == Table::Elections || *key == keys::handover()
}

pub struct ReadHandover;

impl Operation for ReadHandover {
    type Output = Option<HandoverRow>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        Unit::new(tx, Lock::None).get(&keys::handover()).await
    }
}

/// Refuses where these rows may not be served.
pub struct CheckServed;

impl Operation for CheckServed {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        may_serve(ReadHandover.run(tx).await?)
    }
}

pub(crate) fn may_serve(handover: Option<HandoverRow>) -> Result<(), OpError> {
    let why = match handover {
        None => return Ok(()),
        Some(HandoverRow::Arriving { from, .. }) => {
            format!("its rows are not complete: they come from {from}; run that command again to its end")
        }
        Some(HandoverRow::Left { to, .. }) => {
            format!(
                "its rows have gone to {to} and are served there: metadata.database or metadata.dir is to name that"
            )
        }
    };
    Err(Error::new(Code::NotServing, "the metadata store", why).into())
}

/// The store is to be filled from elsewhere. Refused where it has rows of something else.
pub struct BeginArrival {
    pub from: String,
    pub now: Timestamp,
    /// Drawn.
    pub by: u64,
    /// Also where rows were that are served elsewhere now.
    pub replaces_left: bool,
}

impl Operation for BeginArrival {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let format = keys::global("format");
        unit.load(&[keys::handover(), format.clone()]).await?;
        match unit.get::<HandoverRow>(&keys::handover()).await? {
            // An attempt that did not come to its end.
            Some(HandoverRow::Arriving { .. }) => {}
            Some(HandoverRow::Left { .. }) if self.replaces_left => {}
            Some(HandoverRow::Left { to, .. }) => {
                let cause = format_args!(
                    "its rows have gone to {to}, and may be served there: say --replace-left if they are not"
                );
                return Err(Error::new(Code::Exists, "the metadata store", cause).into());
            }
            None if unit.get_raw(&format).await?.is_none() => {}
            None => {
                let cause = "there is a file system in it already: name an empty place";
                return Err(Error::new(Code::Exists, "the metadata store", cause).into());
            }
        }
        unit.put(keys::handover(), &HandoverRow::Arriving { from: self.from.clone(), since: self.now, by: self.by });
        Ok(())
    }
}

/// All rows are here. Refused where another command brings others. Who serves them from now on does so in an epoch above all of those
/// before: the row that has the last one, where several served beside each other, stays where it is, and clients take what is older for outdated.
pub struct EndArrival {
    pub by: u64,
    pub now: Timestamp,
}

impl Operation for EndArrival {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        match unit.get(&keys::handover()).await? {
            Some(HandoverRow::Arriving { by, .. }) if by == self.by => {
                unit.delete(keys::handover());
                go_on_from(&mut unit, Counter::Leaders, leap(Counter::Leaders, self.now)).await
            }
            _ => Err(Error::new(Code::Busy, "the metadata store", "another command fills it, or has filled it").into()),
        }
    }
}

/// They are served here after all.
pub struct Stay;

impl Operation for Stay {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        if let Some(HandoverRow::Left { .. }) = unit.get(&keys::handover()).await? {
            unit.delete(keys::handover());
        }
        Ok(())
    }
}

/// From now on nobody serves these rows.
pub struct Leave {
    pub to: String,
    pub now: Timestamp,
}

impl Operation for Leave {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        tx.put(keys::handover(), HandoverRow::Left { to: self.to.clone(), at: self.now }.encode());
        Ok(())
    }
}
