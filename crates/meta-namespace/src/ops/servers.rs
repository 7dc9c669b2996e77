//! Data servers: the part of their registration that outlives a metadata server.

use super::ids::{Counter, take};
use crate::rows::{RowFormat, ServerRow, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
use braid_meta_engine::{Lock, Operation, Table, Tx};
use braid_types::ServerId;

/// Registers a data server: a new id for 0, else its addresses are brought up to date.
pub struct EnrolServer {
    pub id: ServerId,
    pub row: ServerRow,
}

impl Operation for EnrolServer {
    type Output = ServerId;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<ServerId, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
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
                Some(row) if row == self.row => return Ok(id),
                Some(_) => id,
            },
        };
        unit.put(keys::server(id), &self.row);
        Ok(id)
    }
}

/// All data servers ever registered.
pub struct ListServers;

impl Operation for ListServers {
    type Output = Vec<(ServerId, ServerRow)>;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::Servers, None, usize::MAX >> 1).await?;
        page.rows.iter().map(|(key, row)| Ok((ServerId(key.partition()), ServerRow::decode(key, row)?))).collect()
    }
}
