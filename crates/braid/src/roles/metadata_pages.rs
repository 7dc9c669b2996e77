//! The health page of a metadata server, and its metrics.

use crate::http::Pages;
use crate::metrics::Metrics;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::{Context as CallContext, Namespace};
use braid_meta_server::{CopySet, MetaServer};
use braid_wire::WireStats;
use std::sync::Arc;

pub(super) struct MetadataPages {
    pub server: Arc<MetaServer>,
    pub stats: Arc<WireStats>,
    pub copies: Option<Arc<CopySet>>,
}

impl MetadataPages {
    fn status(&self) -> Option<braid_api::admin::Status> {
        // Answered from memory, so it is ready at once.
        let answer = futures_ready(self.server.call(CallContext::default(), AdminQuery::Status))?;
        match answer {
            Ok(AdminAnswer::Status(status)) => Some(status),
            _ => None,
        }
    }
}

/// The output of a future that does not wait, `None` if it would.
fn futures_ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

impl Pages for MetadataPages {
    fn health(&self) -> (bool, String) {
        match self.status() {
            Some(s) => (
                s.servers_up > 0,
                format!(
                    "cluster {}: {} data servers up, {} down, {} sessions",
                    s.cluster, s.servers_up, s.servers_down, s.sessions
                ),
            ),
            None => (false, "the metadata server does not answer".to_owned()),
        }
    }

    fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        if let Some(s) = self.status() {
            for (name, help, value) in [
                ("sessions", "Clients with a session.", s.sessions.into()),
                ("data_servers_up", "Data servers that are up.", s.servers_up.into()),
                ("data_servers_down", "Data servers that are down.", s.servers_down.into()),
                (
                    "containers_short_of_copies",
                    "Containers with fewer live copies than they should have.",
                    s.chains.short,
                ),
                ("containers_changing", "Containers that change their servers.", s.chains.unsettled),
                ("inodes", "Files, directories and other inodes.", s.inodes),
                ("bytes", "Size of the metadata.", s.metadata_bytes),
            ] {
                metrics.gauge(&format!("braid_meta_{name}"), help, value);
            }
            metrics.counter(
                "braid_meta_leases_run_out_total",
                "How often all leases of a session ran out: its mount was killed, stopped, cut off, or did not answer.",
                s.leases_run_out,
            );
            let reports = &s.reports;
            metrics.gauge(
                "braid_meta_reports_missing_chunks",
                "Chunks of files that are not at a data server of their chain.",
                reports.missing,
            );
            for (name, help, value) in [
                ("compared", "Block reports compared.", reports.compared),
                ("differing", "Block reports that differed from the rows.", reports.differing),
                ("lost_chunks", "Chunks of files found missing at a data server.", reports.lost),
                ("restored_chunks", "Lost copies that were taken from other servers.", reports.restored),
                ("extra_chunks", "Chunks found at data servers that no row names.", reports.extra),
                ("removed_chunks", "Chunks removed because no row names them.", reports.removed),
            ] {
                metrics.counter(&format!("braid_meta_reports_{name}_total"), help, value);
            }
            for (name, help, value) in [
                ("round_trips", "Calls of the engine.", s.round_trips),
                ("transactions", "Transactions that changed rows.", s.transactions),
                ("reads", "Transactions that read rows.", s.reads),
                ("syncs", "Syncs of the disk.", s.syncs),
            ] {
                metrics.counter(&format!("braid_meta_engine_{name}_total"), help, value);
            }
        }
        if let Some(copies) = &self.copies {
            for (name, value) in copies.counters.list() {
                let help = format!("Copies of the metadata: {} sent.", name.replace('_', " "));
                metrics.counter(&format!("braid_meta_copies_{name}_total"), &help, value);
            }
        }
        metrics.wire("braid_meta", &self.stats);
        metrics.0
    }
}
