//! Data servers: the part of their registration that outlives a metadata server.

use super::ids::{Counter, take};
use crate::rows::{MovesRow, RowFormat, ServerRow, keys};
use crate::{OpError, Unit};
use braid_api::meta::Duty;
use braid_api::{Code, Error};
use braid_meta_engine::{Lock, Operation, Table, Tx};
use braid_types::ServerId;

/// Registers a data server: a new id for 0, else what it says of itself is brought up to date. What it is there for stays as
/// it is, and the row is answered.
pub struct EnrolServer {
    pub id: ServerId,
    pub row: ServerRow,
}

impl Operation for EnrolServer {
    type Output = (ServerId, ServerRow);
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(ServerId, ServerRow), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let mut row = ServerRow { duty: Duty::Serves, ..self.row.clone() };
        let id = match self.id {
            ServerId(0) => ServerId(take(&mut unit, Counter::Servers, 1).await?),
            id => match unit.get::<ServerRow>(&keys::server(id)).await? {
                None => {
                    return Err(Error::new(
                        Code::WrongCluster,
                        format_args!("data server {id}"),
                        "this cluster never gave that id; its directory belongs to another one",
                    )
                    .into());
                }
                Some(old) if old.duty == Duty::Decommissioned => return Err(decommissioned(id)),
                Some(old) => {
                    row.duty = old.duty;
                    if row == old {
                        return Ok((id, row));
                    }
                    id
                }
            },
        };
        unit.put(keys::server(id), &row);
        Ok((id, row))
    }
}

fn decommissioned(id: ServerId) -> OpError {
    let cause = "it was taken out of the cluster for ever: start it on an empty directory, and it gets a new id";
    Error::new(Code::Decommissioned, format_args!("data server {id}"), cause).into()
}

/// Changes what a data server is there for; answers the row as it is then. Nothing becomes of a change that does not follow
/// from what it was.
pub struct SetDuty {
    pub id: ServerId,
    pub duty: Duty,
    /// Bytes a second for all moves, from now on.
    pub move_rate: Option<u64>,
}

impl Operation for SetDuty {
    type Output = ServerRow;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<ServerRow, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let key = keys::server(self.id);
        let subject = || format!("data server {}", self.id);
        let Some(mut row) = unit.get::<ServerRow>(&key).await? else {
            return Err(unknown(self.id));
        };
        let cause = match (row.duty, self.duty) {
            (Duty::Decommissioned, _) => return Err(decommissioned(self.id)),
            (Duty::Serves, Duty::Paused | Duty::Drained) => "it is not being drained",
            (Duty::Serves | Duty::Drains | Duty::Paused, Duty::Decommissioned) => "it has not been drained",
            (Duty::Drained, Duty::Paused) => "it is drained already",
            _ => "",
        };
        if !cause.is_empty() {
            return Err(Error::new(Code::Invalid, subject(), cause).into());
        }
        // A drained server stays so when it is to be drained again: nothing can have come to it.
        row.duty = match (row.duty, self.duty) {
            (Duty::Drained, Duty::Drains) => Duty::Drained,
            (_, duty) => duty,
        };
        unit.put(key, &row);
        if let Some(rate) = self.move_rate {
            unit.put(keys::global("moves"), &MovesRow { rate });
        }
        Ok(row)
    }
}

/// An error that says why there is no such data server, if there is none.
pub struct CheckServer(pub ServerId);

impl Operation for CheckServer {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let row = Unit::new(tx, Lock::None).get::<ServerRow>(&keys::server(self.0)).await?;
        match row {
            None => Err(unknown(self.0)),
            Some(row) if row.duty == Duty::Decommissioned => Err(decommissioned(self.0)),
            Some(_) => Ok(()),
        }
    }
}

fn unknown(id: ServerId) -> OpError {
    Error::new(Code::NotFound, format_args!("data server {id}"), "braid admin servers lists those there are").into()
}

/// How moves go; `None` until somebody said it.
pub struct ReadMoves;

impl Operation for ReadMoves {
    type Output = Option<MovesRow>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        Unit::new(tx, Lock::None).get(&keys::global("moves")).await
    }
}

/// All data servers ever registered.
pub struct ListServers;

impl Operation for ListServers {
    type Output = Vec<(ServerId, ServerRow)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::Servers, None, usize::MAX >> 1).await?;
        page.rows.iter().map(|(key, row)| Ok((ServerId(key.partition()), ServerRow::decode(key, row)?))).collect()
    }
}
