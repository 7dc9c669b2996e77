//! One message's dealings with the engine: what it may be told before, and what its answer waits for.

use braid_api::meta::EarlyMark;
use braid_meta_engine::{Early, Order};
use braid_meta_namespace::ops::lookup::Step;
use braid_types::{InodeId, Timestamp};

/// One message's dealings with the engine.
pub(crate) struct Call {
    /// For whom it may be answered before it is durable.
    pub early: Option<Early>,
    /// What must be durable before the answer is.
    pub order: Order,
    /// What was drawn for it.
    pub fresh: InodeId,
    pub now: Timestamp,
    /// It was answered before.
    pub repeated: bool,
    /// It came to who holds the slot of what it is about, who may grant what is told with the answer.
    pub at_holder: bool,
    /// The directory that has nothing sealed in it.
    pub looked_through: Option<InodeId>,
    /// The file is asked about as what this path leads to, which nobody has looked at yet: taken by who does.
    pub led_by: Option<Vec<Step>>,
}

impl Call {
    pub fn new(early: Option<Early>) -> Self {
        Call {
            early,
            order: Order::Durable,
            fresh: InodeId(0),
            now: Timestamp::default(),
            repeated: false,
            at_holder: false,
            looked_through: None,
            led_by: None,
        }
    }

    pub fn saw(&mut self, order: Order) {
        self.order = match (self.order, order) {
            (Order::Early(a), Order::Early(b)) => Order::Early(a.max(b)),
            (Order::Durable, other) | (other, Order::Durable) => other,
        };
    }

    pub fn mark(&self) -> Option<EarlyMark> {
        match self.order {
            Order::Early(number) => Some(EarlyMark { number, fresh: self.fresh, now: self.now }),
            Order::Durable => None,
        }
    }
}
