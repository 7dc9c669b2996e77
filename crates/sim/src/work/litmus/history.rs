//! Operations of all mounts on one object, judged as they come: is there one order that explains every answer?
//!
//! What only may happen beside a call (a lock granted, the answer lost) costs a judge dearly: every order with it and without it
//! stays possible until more is known. So it is judged late: nothing behind it is, until it has turned out whether there was
//! an occasion. Mostly there was none, and it is struck out.

use crate::cluster::Process;
use crate::failures::Invariant;
use braid_model::linear::{Linear, Sequential, TooMany};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

pub struct History<S: Sequential> {
    judge: Mutex<Judge<S>>,
    breaks: Invariant,
}

enum Event<S: Sequential> {
    Began(u64, S::Op),
    /// Who, to be shown.
    Ended(u64, &'static str, S::Op, S::Answer),
    Perhaps(u64),
}

struct Judge<S: Sequential> {
    linear: Linear<S>,
    /// Under way: by what the judge calls them.
    judged: BTreeMap<u64, u64>,
    /// Not judged yet.
    waiting: VecDeque<Event<S>>,
    /// Of those that wait, what may turn out to have had no occasion.
    open: BTreeSet<u64>,
    last: u64,
    has_given_up: bool,
}

impl<S: Sequential> Judge<S>
where
    S::Op: Debug,
    S::Answer: Debug,
{
    fn begin(&mut self, op: &S::Op) -> u64 {
        self.last += 1;
        self.waiting.push_back(Event::Began(self.last, op.clone()));
        self.last
    }

    /// What is wrong with what can be judged now.
    fn judge(&mut self) -> Result<Option<String>, TooMany> {
        while let Some(event) = self.waiting.pop_front() {
            match event {
                Event::Began(id, op) if self.open.contains(&id) => {
                    self.waiting.push_front(Event::Began(id, op));
                    return Ok(None);
                }
                Event::Began(id, op) => _ = self.judged.insert(id, self.linear.begin(op)),
                Event::Perhaps(id) => {
                    if let Some(id) = self.judged.remove(&id) {
                        self.linear.try_perhaps(id)?;
                    }
                }
                Event::Ended(id, who, op, answer) => {
                    let Some(id) = self.judged.remove(&id) else { continue };
                    if !self.linear.try_end(id, &answer)? {
                        return Ok(Some(format!("nothing explains that {op:?} on {who} gave {answer:?}")));
                    }
                }
            }
        }
        Ok(None)
    }
}

impl<S: Sequential> History<S>
where
    S::Op: Debug,
    S::Answer: Debug,
{
    pub fn new(object: S, breaks: Invariant) -> Self {
        let (judged, waiting, open, linear) = (BTreeMap::new(), VecDeque::new(), BTreeSet::new(), Linear::new(object));
        let judge = Judge { linear, judged, waiting, open, last: 0, has_given_up: false };
        History { judge: Mutex::new(judge), breaks }
    }

    pub fn begin(&self, process: &Process, op: &S::Op) -> u64 {
        process.note(format_args!("{op:?}"));
        self.judge.lock().begin(op)
    }

    /// What may happen from now on beside a call of which the history says that it has begun. Nothing is judged until
    /// [`Self::perhaps`] or [`Self::never`] says whether there was an occasion.
    pub fn begin_quietly(&self, op: &S::Op) -> u64 {
        let mut judge = self.judge.lock();
        let id = judge.begin(op);
        judge.open.insert(id);
        id
    }

    pub fn end(&self, process: &Process, id: u64, op: &S::Op, answer: &S::Answer) {
        process.note(format_args!("{op:?}: {answer:?}"));
        let mut judge = self.judge.lock();
        if judge.has_given_up {
            return;
        }
        judge.waiting.push_back(Event::Ended(id, process.machine.name(), op.clone(), answer.clone()));
        match judge.judge() {
            Ok(None) => {}
            Ok(Some(wrong)) => self.wrong(process, wrong),
            Err(TooMany) => {
                judge.has_given_up = true;
                process.cluster.coverage.count("history with too many orders, judged no further");
            }
        }
    }

    /// It has taken effect by now, or never will.
    pub fn perhaps(&self, id: u64) {
        let mut judge = self.judge.lock();
        judge.open.remove(&id);
        judge.waiting.push_back(Event::Perhaps(id));
    }

    /// It has not taken effect, and never will.
    pub fn never(&self, id: u64) {
        let mut judge = self.judge.lock();
        if judge.open.remove(&id) {
            judge.waiting.retain(|event| !matches!(event, Event::Began(began, _) if *began == id));
        }
    }

    pub fn wrong(&self, process: &Process, text: impl std::fmt::Display) {
        process.cluster.around.failures.add(self.breaks, text);
    }
}
