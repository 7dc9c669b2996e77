//! The requests of one connection that run in tasks of their own.

use crate::limits::Limits;
use braid_env::TaskHandle;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use tokio::sync::Notify;

pub(crate) struct Running {
    table: Mutex<Table>,
    /// Some request has ended; the task that reads the connection waits for it.
    ended: Notify,
    count_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Table {
    /// By call, in order: the simulator's runs must not depend on a hash. Without a task is what nobody may end.
    tasks: BTreeMap<u64, Option<TaskHandle>>,
    bytes: usize,
}

/// One request's place, until dropped.
pub(crate) struct Place {
    running: Arc<Running>,
    call: u64,
    bytes: usize,
}

impl Running {
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Running {
            table: Mutex::default(),
            ended: Notify::new(),
            count_max: limits.running_max.max(1),
            bytes_max: limits.running_bytes_max.max(1),
        })
    }

    /// Takes a place, over the bounds if need be: who reads the next request waits for room before. `None` if the
    /// call runs already.
    pub fn enter(self: &Arc<Self>, call: u64, bytes: usize) -> Option<Place> {
        let mut table = self.table.lock();
        match table.tasks.entry(call) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(None),
        };
        table.bytes += bytes;
        Some(Place { running: self.clone(), call, bytes })
    }

    /// Lets the task be ended by `cancel`, unless it has ended already.
    pub fn set_task(&self, call: u64, task: TaskHandle) {
        if let Some(place) = self.table.lock().tasks.get_mut(&call) {
            *place = Some(task);
        }
    }

    /// No other request runs than the one that asks.
    pub fn is_alone(&self) -> bool {
        self.table.lock().tasks.len() <= 1
    }

    pub fn cancel(&self, call: u64) {
        if let Some(Some(task)) = self.table.lock().tasks.get(&call) {
            task.abort();
        }
    }

    pub fn cancel_all(&self) {
        self.table.lock().tasks.values().flatten().for_each(TaskHandle::abort);
    }

    /// Waits until another request may run. For one waiter.
    pub async fn room(&self) {
        self.until(|table| table.tasks.len() < self.count_max && table.bytes < self.bytes_max).await;
    }

    /// Waits until none runs. For one waiter.
    pub async fn none(&self) {
        self.until(|table| table.tasks.is_empty()).await;
    }

    async fn until(&self, holds: impl Fn(&Table) -> bool) {
        while !holds(&self.table.lock()) {
            self.ended.notified().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut table = self.running.table.lock();
            table.tasks.remove(&self.call);
            table.bytes -= self.bytes;
        }
        self.running.ended.notify_one();
    }
}
