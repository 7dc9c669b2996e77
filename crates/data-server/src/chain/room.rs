//! Room for content on its way to one server, in the order in which it was asked for.
//!
//! Promises: what is granted is taken, so that nobody else gets it while the content is read; it is given back when the [`Room`] goes,
//! however that comes about; whoever has asked first is granted first, so that no chunk waits for ever beside others.

use super::window::Window;
use braid_env::Monotonic;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// To come when there is room. Whoever drops it does not wait any more.
pub type Waiting = oneshot::Receiver<Room>;

#[derive(Default)]
pub(super) struct Way {
    /// Lock order: nothing is taken under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    window: Window,
    waiting: VecDeque<(usize, oneshot::Sender<Room>)>,
    /// When the server took the last.
    taken: Option<Monotonic>,
}

/// Bytes that may be on their way.
#[derive(Default)]
pub struct Room {
    /// None where there is room for everything.
    way: Option<Arc<Way>>,
    bytes: usize,
}

impl Room {
    /// Whoever waits has it at once.
    pub fn for_all() -> Waiting {
        let (send, waiting) = oneshot::channel();
        let _ = send.send(Room::default());
        waiting
    }

    /// The message is as long as this, and not longer than what was asked for.
    pub(super) fn of(mut self, bytes: usize) -> Room {
        if let Some(way) = &self.way {
            let rest = self.bytes.saturating_sub(bytes);
            self.bytes -= rest;
            way.changes(|window| window.give_back(rest));
        }
        self
    }

    /// What was sent then has been taken, or is lost.
    pub(super) fn ends(mut self, sent: Monotonic, now: Monotonic, is_taken: bool) {
        if let Some(way) = self.way.take() {
            let mut state = way.state.lock();
            if is_taken {
                state.taken = Some(now);
            }
            state.window.leave(self.bytes, sent, now, is_taken);
            way.grant(&mut state);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(way) = self.way.take() {
            way.changes(|window| window.give_back(self.bytes));
        }
    }
}

impl Way {
    pub fn ask(self: &Arc<Self>, bytes: usize) -> Waiting {
        let (send, waiting) = oneshot::channel();
        let mut state = self.state.lock();
        state.waiting.push_back((bytes, send));
        self.grant(&mut state);
        waiting
    }

    /// It has taken some within this time.
    pub fn takes(&self, now: Monotonic, within: Duration) -> bool {
        self.state.lock().taken.is_some_and(|at| now.since(at) < within)
    }

    pub fn given_up_after(&self) -> Duration {
        self.state.lock().window.given_up_after()
    }

    fn changes(self: &Arc<Self>, change: impl FnOnce(&mut Window)) {
        let mut state = self.state.lock();
        change(&mut state.window);
        self.grant(&mut state);
    }

    fn grant(self: &Arc<Self>, state: &mut State) {
        let State { window, waiting, .. } = state;
        while let Some((bytes, send)) =
            waiting.pop_front_if(|(bytes, send)| send.is_closed() || window.has_room(*bytes))
        {
            window.enter(bytes);
            if let Err(mut room) = send.send(Room { way: Some(self.clone()), bytes }) {
                // Not through its end, which would come here again.
                room.way = None;
                window.give_back(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::CONTENT_BYTES;
    use super::*;

    fn granted(waiting: &mut Waiting) -> Option<Room> {
        waiting.try_recv().ok()
    }

    #[test]
    fn who_asked_first_has_room_first_and_nobody_passes_by() {
        let way = Arc::new(Way::default());
        let mut rooms: Vec<Room> = Vec::new();
        // As much as there is at first.
        while let Some(room) = granted(&mut way.ask(CONTENT_BYTES)) {
            rooms.push(room);
        }
        assert_eq!(rooms.len(), 4);
        let (mut large, mut gone, mut small) = (way.ask(CONTENT_BYTES), way.ask(CONTENT_BYTES), way.ask(4096));
        gone.close();
        assert!(granted(&mut small).is_none(), "it would fit no sooner than what is before it");
        // A message that is shorter than what was asked for gives the rest back.
        let short = rooms.pop().unwrap().of(CONTENT_BYTES / 2);
        assert!(granted(&mut large).is_none() && granted(&mut small).is_none(), "the first one waits, and so do all");
        drop(short);
        let large = granted(&mut large).expect("it is its turn");
        assert!(granted(&mut small).is_none());
        large.ends(Monotonic::default(), Monotonic(Duration::from_secs(9)), true);
        assert!(granted(&mut small).is_none(), "late: half of the window is gone");
        rooms.clear();
        assert!(granted(&mut small).is_some() && granted(&mut gone).is_none());
    }

    #[test]
    fn what_is_granted_and_not_fetched_is_given_back() {
        let way = Arc::new(Way::default());
        for _ in 0..100 {
            drop(way.ask(CONTENT_BYTES));
        }
        assert_eq!((0..9).map_while(|_| granted(&mut way.ask(CONTENT_BYTES))).map(std::mem::forget).count(), 4);
    }
}
