use braid_api::Code;

/// The errno that stands for a code. Nothing else in BraidFS knows errno.
///
/// What a program can act on has its own number. All that says "the cluster could not" is EIO: the program sees
/// what it would see of a broken disk, the log of the mount names the server.
pub fn errno_of(code: Code) -> i32 {
    match code {
        Code::NotFound => libc::ENOENT,
        Code::Exists => libc::EEXIST,
        Code::NotDirectory => libc::ENOTDIR,
        Code::IsDirectory => libc::EISDIR,
        Code::NotEmpty => libc::ENOTEMPTY,
        Code::NotPermitted | Code::Sealed => libc::EPERM,
        Code::AccessDenied => libc::EACCES,
        Code::CrossDevice => libc::EXDEV,
        Code::NameTooLong => libc::ENAMETOOLONG,
        Code::Invalid => libc::EINVAL,
        Code::TooManyLinks => libc::EMLINK,
        Code::NoSpace | Code::DiskFull => libc::ENOSPC,
        Code::QuotaExceeded => libc::EDQUOT,
        Code::FileTooBig => libc::EFBIG,
        Code::NoXattr => libc::ENODATA,
        Code::Range => libc::ERANGE,
        Code::TooBig => libc::E2BIG,
        Code::ReadOnly => libc::EROFS,
        Code::Stale => libc::ESTALE,
        // Never ENOSYS: the kernel would not ask again.
        Code::NotSupported => libc::EOPNOTSUPP,
        Code::WouldBlock => libc::EAGAIN,
        Code::Deadlock => libc::EDEADLK,
        Code::TooManyLocks => libc::ENOLCK,
        Code::Interrupted => libc::EINTR,
        Code::BadHandle => libc::EBADF,
        Code::Busy | Code::Frozen => libc::EBUSY,
        Code::NoData => libc::ENXIO,
        Code::TextBusy => libc::ETXTBSY,
        Code::SessionUnknown
        | Code::SessionFenced
        | Code::StaleEpoch
        | Code::StaleTruncGen
        | Code::StaleLease
        | Code::NotOwner
        | Code::NotServing
        | Code::HeldElsewhere
        | Code::Recovering
        | Code::WriteLost
        | Code::Overtaken
        | Code::RequestReused
        | Code::Unreachable
        | Code::DeadlineExceeded
        | Code::Disconnected
        | Code::MaybeCommitted
        | Code::ChunkUnknown
        | Code::BadBlock
        | Code::DiskError
        | Code::NoServers
        | Code::ChunkLost
        | Code::FewRowCopies
        | Code::BadMessage
        | Code::WrongCluster
        | Code::Decommissioned
        | Code::WrongVersion
        | Code::WrongRole
        | Code::FrameTooLong
        | Code::Newer
        | Code::BadConfig
        | Code::Internal
        | Code::Unknown => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_is_an_errno_the_kernel_keeps_to_itself() {
        for &code in Code::ALL {
            assert!((1..=133).contains(&errno_of(code)) && errno_of(code) != libc::ENOSYS, "{code:?}");
        }
    }
}
