//! What waits for a session until it listens: each order is put in again by whoever gave it until it is carried out.

use braid_api::lease::{LeaseKey, Order};
use braid_env::Monotonic;
use braid_lease::Key;
use braid_types::{InodeId, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Mailbox {
    /// By revocation.
    pub orders: BTreeMap<u64, Vec<Key>>,
    /// The last word on each file.
    pub files: BTreeMap<InodeId, Order>,
    /// Sealed files that others want unsealed; told again until they are left.
    pub leave: BTreeSet<InodeId>,
    /// What it has to itself and others want; told again until it has left.
    pub slots: BTreeSet<Slot>,
    /// When it was told last to renew, as its word is waited for.
    pub renew_told: Option<Monotonic>,
    pub bell: Arc<Notify>,
    /// Announcements from before this session cached: until they are released it is granted nothing.
    pub not_before: BTreeSet<u64>,
}

/// Of the 1 MiB that a message may have; what one order has more than that leaves room for the longest.
const ORDERS_BYTES: usize = 512 << 10;

/// Before a session whose word is waited for is told so again: it may not have heard it.
pub const RENEW_AGAIN: Duration = Duration::from_secs(1);

impl Mailbox {
    /// What fits into a message; the rest is taken with the next. `awaited`: the session's word is waited for, now.
    pub fn take(&mut self, awaited: Option<Monotonic>) -> Vec<Order> {
        let (mut orders, mut bytes) = (Vec::new(), 0);
        if let Some(now) = awaited
            && self.renew_told.is_none_or(|told| now.since(told) >= RENEW_AGAIN)
        {
            self.renew_told = Some(now);
            orders.push(Order::Renew);
        }
        while bytes < ORDERS_BYTES {
            if let Some((revocation, keys)) = self.orders.pop_first() {
                let long = |key: &Key| 24 + if let Key::Name(_, name) = key { name.as_bytes().len() } else { 0 };
                bytes += 24 + keys.iter().map(long).sum::<usize>();
                orders.push(Order::Revoke { revocation, keys: keys.iter().map(told).collect() });
            } else if let Some((_, order)) = self.files.pop_first() {
                bytes += 40;
                orders.push(order);
            } else if let Some(inode) = self.leave.pop_first() {
                bytes += 16;
                orders.push(Order::Leave { inode });
            } else if let Some(slot) = self.slots.pop_first() {
                bytes += 16;
                orders.push(Order::LeaveSlot { slot });
            } else {
                break;
            }
        }
        orders
    }
}

pub fn told(key: &Key) -> LeaseKey {
    match key {
        Key::Dir(id) => LeaseKey::Dir(*id),
        Key::Name(id, name) => LeaseKey::Name(*id, name.clone()),
        Key::Attr(id) => LeaseKey::Attr(*id),
    }
}
