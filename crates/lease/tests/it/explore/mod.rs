//! Breadth-first exploration of every state a small model can reach. A failure comes with the shortest way to it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};

pub trait Model: Clone + Eq + Hash {
    type Action: Clone + Debug;
    /// Everything that could happen next.
    fn actions(&self) -> Vec<Self::Action>;
    fn act(&mut self, action: &Self::Action);
    /// What must hold in every state.
    fn check(&self) -> Result<(), String>;
    /// What happens next if the network delivers, servers work and time passes. `None`: nobody waits for anything.
    fn fair(&self) -> Option<Self::Action>;
    /// Coverage: what this state shows.
    fn marks(&self, _mark: &mut dyn FnMut(&'static str)) {}
}

#[derive(Debug)]
pub struct Failure {
    pub what: String,
    pub trace: Vec<String>,
    /// States seen before it was found.
    pub states: usize,
}

#[derive(Debug)]
pub struct Report {
    pub states: usize,
    pub steps: usize,
    pub deepest: usize,
    pub drained: usize,
    /// Every reachable state was seen.
    pub complete: bool,
    pub marks: HashMap<&'static str, usize>,
}

pub struct Bounds {
    pub states_max: usize,
    /// One state in so many is followed until it is quiet; 0: none.
    pub drain_every: usize,
    /// Fair steps after which somebody waits for ever.
    pub drain_max: usize,
}

/// Multiply and rotate; SipHash costs a third of the exploration. 64 bits: among 10^6 states two collide with a
/// probability of 3 in 10^8.
#[derive(Default)]
struct Fast(u64);

impl Hasher for Fast {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn finish(&self) -> u64 {
        let mut h = self.0;
        h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^ (h >> 32)
    }
}

fn print_of<M: Hash>(model: &M) -> u64 {
    let mut hasher = Fast::default();
    model.hash(&mut hasher);
    hasher.finish()
}

/// Where a state came from: its parent and which of the parent's actions.
type Origins = HashMap<u64, (u64, u32), BuildHasherDefault<Fast>>;

fn trace_of<M: Model>(start: &M, origins: &Origins, end: u64) -> (Vec<String>, M) {
    let mut choices = Vec::new();
    let mut at = end;
    while let Some((parent, choice)) = origins.get(&at).filter(|(parent, _)| *parent != at) {
        choices.push(*choice as usize);
        at = *parent;
    }
    let mut model = start.clone();
    let mut trace = Vec::new();
    for choice in choices.into_iter().rev() {
        let action = model.actions()[choice].clone();
        trace.push(format!("{action:?}"));
        model.act(&action);
    }
    (trace, model)
}

pub fn explore<M: Model>(start: M, bounds: &Bounds) -> Result<Report, Failure> {
    let mut origins = Origins::default();
    let root = print_of(&start);
    origins.insert(root, (root, 0));
    let mut layer = vec![(root, start.clone())];
    let mut report = Report { states: 1, steps: 0, deepest: 0, drained: 0, complete: true, marks: HashMap::new() };
    let fail = |what: String, origins: &Origins, end: u64, more: Vec<String>| {
        let (mut trace, _) = trace_of(&start, origins, end);
        trace.extend(more);
        Failure { what, trace, states: origins.len() }
    };
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for (from, model) in &layer {
            for (choice, action) in model.actions().iter().enumerate() {
                let mut next = model.clone();
                next.act(action);
                report.steps += 1;
                let print = print_of(&next);
                if origins.contains_key(&print) {
                    continue;
                }
                origins.insert(print, (*from, choice as u32));
                report.states += 1;
                if let Err(what) = next.check() {
                    return Err(fail(what, &origins, print, Vec::new()));
                }
                next.marks(&mut |mark| *report.marks.entry(mark).or_default() += 1);
                if bounds.drain_every > 0 && (print >> 20).is_multiple_of(bounds.drain_every as u64) {
                    report.drained += 1;
                    drain(&next, bounds.drain_max).map_err(|(what, more)| fail(what, &origins, print, more))?;
                }
                if report.states >= bounds.states_max {
                    report.complete = false;
                    return Ok(report);
                }
                next_layer.push((print, next));
            }
        }
        layer = next_layer;
        report.deepest += 1;
    }
    Ok(report)
}

/// From here on everything goes well: does everybody get what he waits for?
fn drain<M: Model>(from: &M, max: usize) -> Result<(), (String, Vec<String>)> {
    let mut model = from.clone();
    let mut trace = vec!["-- from here on fair --".to_owned()];
    while let Some(action) = model.fair() {
        trace.push(format!("{action:?}"));
        model.act(&action);
        model.check().map_err(|what| (what, trace.clone()))?;
        if trace.len() > max {
            trace.truncate(40);
            return Err(("somebody waits for ever".into(), trace));
        }
    }
    Ok(())
}
