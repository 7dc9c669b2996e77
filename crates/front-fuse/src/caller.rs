use braid_api::Caller;
use braid_fuse_kernel::Request;
use braid_types::{Mode, TraceId};

/// Who asks, for everything but creating.
pub fn caller(request: &Request<'_>) -> Caller {
    Caller {
        uid: request.uid,
        gid: request.gid,
        groups: Vec::new(),
        pid: request.pid,
        umask: 0,
        trace: TraceId(request.unique),
    }
}

/// Who creates. Supplementary groups matter only to an executable with setgid; newer kernels send the one that counts
/// (the parent's), and drop the bit themselves; for older ones it is read from the caller's process.
pub fn creator(request: &Request<'_>, umask: u32, mode: u32, kernel_sends_groups: bool) -> Caller {
    let groups = if kernel_sends_groups || mode & Mode::SETGID == 0 || mode & 0o010 == 0 {
        request.groups.clone()
    } else {
        groups_of_process(request.pid)
    };
    Caller { umask, groups, ..caller(request) }
}

/// None if the process is gone or of another namespace: then it is treated as in no further group.
fn groups_of_process(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    parse_groups(&status)
}

fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_the_status_of_a_process() {
        assert_eq!(parse_groups("Name:\tcat\nGroups:\t4 24 1000 \nVmPeak:"), [4, 24, 1000]);
        assert!(parse_groups("Groups:\t \n").is_empty());
        assert!(groups_of_process(0).is_empty());
    }
}
