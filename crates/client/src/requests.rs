//! Request ids and the low-water mark. Pure.

use braid_types::RequestId;
use parking_lot::Mutex;
use std::collections::BTreeSet;

#[derive(Default)]
struct Ids {
    last: u64,
    open: BTreeSet<u64>,
}

/// Gives out ids from 1 upwards and knows which are unanswered.
#[derive(Default)]
pub struct Requests(Mutex<Ids>);

/// An id in use; answered, or given up for good, when dropped.
pub struct Numbered<'a> {
    requests: &'a Requests,
    pub id: RequestId,
}

impl Requests {
    pub fn begin(&self) -> Numbered<'_> {
        let mut ids = self.0.lock();
        ids.last += 1;
        let id = ids.last;
        ids.open.insert(id);
        Numbered { requests: self, id: RequestId(id) }
    }

    /// Every smaller id is answered and will not be repeated.
    pub fn low_water(&self) -> RequestId {
        let ids = self.0.lock();
        RequestId(ids.open.first().copied().unwrap_or(ids.last + 1))
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().open.remove(&self.id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_the_smallest_unanswered() {
        let requests = Requests::default();
        assert_eq!(requests.low_water(), RequestId(1));
        let (first, second) = (requests.begin(), requests.begin());
        drop(second);
        assert_eq!((first.id, requests.low_water()), (RequestId(1), RequestId(1)));
        drop(first);
        assert_eq!(requests.low_water(), RequestId(3));
    }
}
