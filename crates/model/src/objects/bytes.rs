use crate::linear::Sequential;

/// A file of slots: what each holds, 0 for a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slots(pub Vec<u64>);

#[derive(Clone, Copy, Debug)]
pub enum SlotOp {
    Write(usize, u64),
    Append(u64),
    /// To so many slots.
    Truncate(usize),
    /// `None` behind the end.
    Read(usize),
    /// In slots.
    Size,
}

impl Sequential for Slots {
    type Op = SlotOp;
    type Answer = Option<u64>;

    fn apply(&mut self, op: &SlotOp) -> Option<u64> {
        let Slots(slots) = self;
        match *op {
            SlotOp::Write(at, value) => {
                slots.resize(slots.len().max(at + 1), 0);
                slots[at] = value;
                None
            }
            SlotOp::Append(value) => {
                slots.push(value);
                None
            }
            SlotOp::Truncate(len) => {
                slots.resize(len, 0);
                None
            }
            SlotOp::Read(at) => slots.get(at).copied(),
            SlotOp::Size => Some(slots.len() as u64),
        }
    }
}
