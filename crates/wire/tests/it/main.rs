//! One binary for all of them: each would build the code under test anew.

mod calls;
mod remote;
mod sockets;
mod support;
