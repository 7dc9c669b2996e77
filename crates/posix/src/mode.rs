//! Which privilege bits a change takes away.

use braid_types::Mode;

/// The mode after a write, truncate or change of owner by somebody without privilege: no setuid, and no setgid if the
/// group may execute (without that bit, setgid marks mandatory locking and is no privilege).
pub fn without_privileges(mode: Mode) -> Mode {
    let mut bits = mode.0 & !Mode::SETUID;
    if mode.has(0o010) {
        bits &= !Mode::SETGID;
    }
    Mode(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setgid_goes_only_with_group_execute() {
        assert_eq!(without_privileges(Mode(0o6755)), Mode(0o755));
        assert_eq!(without_privileges(Mode(0o6745)), Mode(0o2745));
    }
}
