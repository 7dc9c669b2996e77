//! One start of a metadata server that serves, and the ways to it.

use crate::acks::Acks;
use crate::cache::Task;
use crate::stop::Stop;
use braid_api::erased::{Meta, MetaPeers};
use braid_types::MemberId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

pub struct Seat {
    pub id: MemberId,
    addresses: Vec<String>,
    /// Made when they are needed.
    calls: OnceLock<Arc<dyn Meta>>,
    control: OnceLock<Arc<dyn Meta>>,
    /// It is no member any more.
    pub gone: Stop,
    /// What it is to be told, in that order.
    pub to_say: Mutex<Vec<Task>>,
    /// Revocations that the next listening says to be carried out.
    pub acks: Acks,
    /// Async: one says it.
    pub saying: tokio::sync::Mutex<()>,
    /// It is to be renewed at now.
    pub due: Notify,
    /// Somebody sees to renewals.
    pub is_renewed: AtomicBool,
    /// Something was asked of it since the last renewal.
    used: AtomicBool,
    /// It is not renewed at, as nothing is asked of it.
    asleep: AtomicBool,
}

impl Seat {
    pub fn new(id: MemberId, addresses: Vec<String>) -> Seat {
        Seat {
            id,
            addresses,
            calls: OnceLock::new(),
            control: OnceLock::new(),
            gone: Stop::default(),
            to_say: Mutex::default(),
            acks: Acks::default(),
            saying: Default::default(),
            due: Notify::new(),
            is_renewed: AtomicBool::new(false),
            used: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
        }
    }

    pub fn calls(&self, peers: &dyn MetaPeers) -> &dyn Meta {
        &**self.calls.get_or_init(|| peers.meta(&self.addresses))
    }

    pub fn control(&self, peers: &dyn MetaPeers) -> &dyn Meta {
        &**self.control.get_or_init(|| peers.meta(&self.addresses))
    }

    /// Something is asked of it: without a term there nothing of it would be kept, and no file could be used.
    pub fn is_used(&self) {
        self.used.store(true, SeqCst);
        if self.asleep.swap(false, SeqCst) {
            self.due.notify_one();
        }
    }

    /// Whether anything was asked of it since this was asked last.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, SeqCst)
    }

    /// It is not renewed at until something is asked of it again. False if something was just now.
    pub fn sleep(&self) -> bool {
        self.asleep.store(true, SeqCst);
        !self.used.load(SeqCst)
    }
}
