//! chmod/access: what one mount allows or forbids the next open or access of the other obeys. Permissions are the kernel's, which
//! decides by the mode that it has or asks for.

use super::litmus::{LEAST, THREADS, together};
use super::posix::as_user;
use super::two_mounts::Two;
use braid_model::linear::Sequential;
use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, openat};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::RwLock;

/// Not the owner, and in no group.
const USER: u32 = 54_321;

/// Others may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Allowed(bool);

#[derive(Clone, Copy, Debug)]
enum RightOp {
    Chmod(bool),
    Open,
    Access,
}

impl Sequential for Allowed {
    type Op = RightOp;
    type Answer = bool;

    fn apply(&mut self, op: &RightOp) -> bool {
        match *op {
            RightOp::Chmod(allowed) => {
                self.0 = allowed;
                true
            }
            RightOp::Open | RightOp::Access => self.0,
        }
    }
}

#[test]
#[ignore = "by hand: beside three busy loops one run of eight meets what only a kernel could know, see docs/posix.md"]
fn what_one_mount_forbids_no_program_of_the_other_may_open_afterwards() {
    let Some(two) = Two::new() else { return };
    std::fs::write(two.at[0].join("file"), "never read").unwrap();
    // Who is not root may not pass through the directory that the mounts lie in, only what begins at them.
    let roots = [0, 1].map(|n: usize| File::open(&two.at[n]).unwrap());
    for root in &roots {
        root.set_permissions(Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(two.at[0].join("file"), Permissions::from_mode(0o600)).unwrap();
    // A kernel shows what a change of its own mount makes old until it hears that the change is done (docs/posix.md).
    let of_mount = [RwLock::new(()), RwLock::new(())];
    let done = together(&two, LEAST, THREADS, Allowed(false), |at, who, dice, history| {
        let root = &roots[who % 2];
        if who < 2 {
            let (allowed, _changes) = (dice.throw(2) == 0, of_mount[who % 2].write().unwrap());
            let mode = if allowed { 0o604 } else { 0o600 };
            history.run(who, RightOp::Chmod(allowed), || {
                std::fs::set_permissions(at.join("file"), Permissions::from_mode(mode)).unwrap();
                true
            });
            return;
        }
        let ops: Vec<RightOp> =
            (0..20).map(|_| if dice.throw(2) == 0 { RightOp::Open } else { RightOp::Access }).collect();
        as_user(USER, || {
            for op in ops {
                let _looks = of_mount[who % 2].read().unwrap();
                history.run(who, op, || match op {
                    RightOp::Access => accessat(root, "file", Access::READ_OK, AtFlags::EACCESS).is_ok(),
                    _ => openat(root, "file", OFlags::RDONLY, Mode::empty()).is_ok(),
                });
            }
        });
    });
    assert!(done > LEAST, "{done} operations in a minute");
}
