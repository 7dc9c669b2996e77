//! Metrics as Prometheus reads them: each with a word on what it counts.

use std::fmt::{Display, Write};

/// The text of a page, row by row. Writing into a `String` cannot fail.
#[derive(Default)]
pub struct Metrics(pub String);

impl Metrics {
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// One counter for each value of `label`.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        rows: impl IntoIterator<Item = (impl Display, u64)>,
    ) {
        self.head(name, "counter", help);
        for (of, value) in rows {
            let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
        }
    }

    /// Messages and bytes of a server.
    pub fn wire(&mut self, prefix: &str, stats: &braid_wire::WireStats) {
        let now = stats.snapshot();
        let name = |what: &str| format!("{prefix}_{what}_total");
        self.counters(&name("messages"), "Requests received, by their kind.", "message", now.received);
        for (what, help, count) in [
            ("bytes_received", "Bytes received, of whole frames.", now.bytes_received),
            ("bytes_sent", "Bytes sent, of whole frames.", now.bytes_sent),
            ("payload_bytes_received", "Bytes of files received.", now.payload_bytes_received),
            ("payload_bytes_sent", "Bytes of files sent.", now.payload_bytes_sent),
            ("wire_errors", "Requests answered with an error.", now.errors),
            ("connects", "Connections that began.", now.connects),
            ("refusals", "Connections that were refused.", now.refusals),
        ] {
            self.counter(&name(what), help, count);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }
}
