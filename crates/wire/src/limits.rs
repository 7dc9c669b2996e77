use std::time::Duration;

/// For a call whose context names no deadline (design.md: call deadline 60 s).
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

/// Bounds of connections. Both ends of a cluster should agree on the first two; a longer frame closes the
/// connection that brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub body_bytes_max: usize,
    /// At most [`crate::BufferPool::BUFFER_BYTES_MAX`].
    pub payload_bytes_max: usize,
    /// Requests of one connection that run at once; beyond that it is not read.
    pub running_max: usize,
    /// Payload bytes those requests hold, and those their answers are going to.
    pub running_bytes_max: usize,
    /// Bytes queued for one connection before those who send on it wait.
    pub outbox_bytes_max: usize,
    /// Connections one server keeps open; each has a buffer of 32 KiB.
    pub connections_max: usize,
    /// Free buffers kept for payloads to come, over all connections of an endpoint.
    pub pool_bytes_max: usize,
    /// A connection whose hello takes longer is closed.
    pub hello_timeout: Duration,
    /// To connect and exchange hellos with one address.
    pub connect_timeout: Duration,
    /// For running requests at shutdown.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes_max: 1 << 20,
            payload_bytes_max: 16 << 20,
            running_max: 1024,
            running_bytes_max: 64 << 20,
            outbox_bytes_max: 16 << 20,
            connections_max: 4096,
            pool_bytes_max: 64 << 20,
            hello_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// What a context asks for, with the default filled in.
pub(crate) fn deadline_or_default(deadline: Duration) -> Duration {
    if deadline.is_zero() { CALL_DEADLINE_DEFAULT } else { deadline }
}
