//! Who would answer at the instant at which a write is answered.
//!
//! That the bytes have one order is found by who reads and writes them, which may be nobody while two servers would answer. This asks all
//! servers that run, each by its own clock, with every write that is answered.

use crate::cluster::Cluster;
use crate::failures::Invariant;
use braid_api::Result;
use braid_api::data::{DataAnswer, DataRequest};
use braid_types::{ByteRange, ServerId};
use bytes::Bytes;

pub fn check(cluster: &Cluster, at: ServerId, request: &DataRequest, len: usize, result: &Result<(DataAnswer, Bytes)>) {
    let (DataRequest::WriteCopies(m), Ok((DataAnswer::WriteCopies(answer), _))) = (request, result) else { return };
    let write = &m.write;
    let (container, chunk) = (write.container, write.chunk);
    let bytes = ByteRange::at(write.offset, len as u64);
    let servers = cluster.servers();
    let stands =
        |id| servers.iter().find(|(_, server)| server.id() == id).map(|(_, s)| s.stands(container, chunk, bytes));
    // What has stood still since it was carried out has answered then, by the clocks.
    if !stands(at).is_some_and(|here| here.acknowledges) {
        return;
    }
    cluster.coverage.count("write answered while all others were looked at");
    let fail = |text: String| cluster.around.failures.add(Invariant::OneOwnerAtAnInstant, text);
    for other in servers.iter().map(|(_, server)| server.id()).filter(|other| *other != at) {
        let Some(there) = stands(other) else { continue };
        let version = answer.version;
        if there.acknowledges {
            fail(format!(
                "chunk {chunk}: data server {at} answers a write as {version:?} while {other} would answer some"
            ));
        }
        // Under an exclusive lease nobody else reads, and the others hear of it later.
        if let Some(told) = there.serves.filter(|told| !write.alone && *told < version) {
            fail(format!(
                "chunk {chunk}: data server {at} answers a write as {version:?} while {other} serves {told:?}"
            ));
        }
    }
}
