//! ReserveCopy: room for a copy here. The copy itself is made by the chain.

use crate::core::{Call, Core};
use braid_api::Result;
use braid_api::data::ReserveCopy;
use braid_data_store::StoreError;
use std::sync::Arc;

impl Core {
    pub async fn reserve_copy(self: &Arc<Self>, call: &Call, m: ReserveCopy) -> Result<()> {
        if m.bytes > m.chunk_bytes {
            let cause = format_args!("{} bytes are more than the chunk can have: {}", m.bytes, m.chunk_bytes);
            return Err(self.invalid(m.chunk, cause));
        }
        self.check_chain(call, m.container, m.chunk)?;
        let turn = self.turn(call, &self.lanes.get(m.chunk)).await;
        let of_work = *call;
        let reserve = move |core: &Core| {
            let _turn = turn;
            let _pass = core.gate.enter(&of_work.token, m.container)?;
            let fail = |error: StoreError| core.error(m.chunk, &error);
            let occupied = match core.store.stat(m.chunk) {
                Ok(stat) => stat.occupied,
                Err(StoreError::NoSuchChunk(_)) if core.may_make(m.make) => 0,
                Err(error) => return Err(fail(error)),
            };
            let reserve = |missing| core.store.reserve(m.chunk, missing);
            core.reservations.reserve(m.chunk, of_work.token.session, m.bytes, occupied, reserve).map_err(fail)
        };
        self.on_disk(call, reserve).await
    }
}
