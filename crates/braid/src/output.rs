//! What people see: aligned tables, sizes, and the log.

use crate::config;
use braid_types::{FileKind, Mode, Timestamp};
use std::fmt::Write as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};

/// Rows under a heading, columns aligned; numbers to the right.
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Self {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn render(&self) -> String {
        let columns = self.head.len();
        let cell = |row: &Vec<String>, c: usize| row.get(c).cloned().unwrap_or_default();
        let width = |c: usize| {
            let longest = self.rows.iter().map(|row| cell(row, c).chars().count()).max().unwrap_or(0);
            longest.max(self.head[c].len())
        };
        let is_number = |c: usize| {
            !self.rows.is_empty()
                && self.rows.iter().all(|row| cell(row, c).starts_with(|ch: char| ch.is_ascii_digit() || ch == '-'))
        };
        let mut text = String::new();
        let head: Vec<String> = self.head.iter().map(|h| (*h).to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for c in 0..columns {
                let gap = if c == 0 { "" } else { "  " };
                let (value, width) = (cell(row, c), width(c));
                // Writing into a String cannot fail.
                let _ = if is_number(c) {
                    write!(line, "{gap}{value:>width$}")
                } else {
                    write!(line, "{gap}{value:<width$}")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    pub fn print(&self) {
        print!("{}", self.render());
    }
}

/// `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < units.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// `350 ms`, `12 s`, `3 min`, `never` for what was not heard of.
pub fn millis(ms: u64) -> String {
    match ms {
        u64::MAX => "never".to_owned(),
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

/// A name or path from the cluster: as it is if people can read it, else with escapes.
pub fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// `2026-11-21 05:41:20`, in UTC.
pub fn time(at: Timestamp) -> String {
    let (days, secs) = (at.secs().div_euclid(86_400), at.secs().rem_euclid(86_400));
    let (y, m, d) = date(days);
    format!("{y:04}-{m:02}-{d:02} {:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

/// Year, month and day of a day counted from 1970-01-01, in years that begin in March, whose leap day comes last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// `drwxr-xr-x`.
pub fn mode(kind: FileKind, mode: Mode) -> String {
    let mut text = String::with_capacity(10);
    text.push(match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    });
    let special = [(Mode::SETUID, 's', 'S'), (Mode::SETGID, 's', 'S'), (Mode::STICKY, 't', 'T')];
    for (i, (bit, with_x, without_x)) in special.into_iter().enumerate() {
        let rwx = mode.0 >> (6 - 3 * i);
        text.push(if rwx & 4 != 0 { 'r' } else { '-' });
        text.push(if rwx & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode.has(bit), rwx & 1 != 0) {
            (true, true) => with_x,
            (true, false) => without_x,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// An error without its subject, where that says less than what stands before it. Errors of data servers and their disks
/// (4xx) keep it: it is which of them.
pub fn brief(error: &braid_api::Error) -> String {
    if matches!(error.code as u16, 400..=499) && !error.subject().is_empty() {
        return error.to_string();
    }
    let cause = if error.cause().is_empty() { String::new() } else { format!(": {}", error.cause()) };
    format!("{}{cause} (B{})", error.code.text(), error.code as u16)
}

/// Adds the trace of the operation that is being worked for, where the line has none. In a server each request has a span with
/// its trace; a mount has thousands of operations a second that log nothing, and looks for it only when a line is written.
struct WithTrace<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        self.0.format_event(cx, Writer::new(&mut line), event)?;
        let trace = braid_api::trace::current().0;
        match trace != 0 && !line.contains("trace=") {
            true => writeln!(writer, "{} trace={trace}", line.trim_end()),
            false => writer.write_str(&line),
        }
    }
}

/// Starts logging to standard error. `BRAID_LOG` wins over the configuration.
pub fn start_log(level: &str) {
    let filter = match std::env::var("BRAID_LOG") {
        Ok(filter) => config::log_level(&filter).map(|()| filter).unwrap_or_else(|why| {
            eprintln!("braid: BRAID_LOG is not used: {why}");
            level.to_owned()
        }),
        Err(_) => level.to_owned(),
    };
    let filter =
        tracing_subscriber::EnvFilter::try_new(&filter).unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A second start, as in tests, keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_ansi(false)
        .log_internal_errors(false)
        .event_format(WithTrace(tracing_subscriber::fmt::format()))
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::TraceId;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_of_an_operation_has_its_trace_once() {
        let log = Log::default();
        let to_log = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(WithTrace(tracing_subscriber::fmt::format().without_time()))
            .with_writer(move || to_log.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(inode = 7, "nobody's");
            let _entered = braid_api::trace::enter(TraceId(42));
            tracing::warn!(inode = 7, "an operation's");
            let _span = tracing::error_span!("call", trace = 43).entered();
            tracing::warn!(inode = 7, "a request's");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let place = "braid::output::tests";
        let lines = [
            format!(" WARN {place}: nobody's inode=7"),
            format!(" WARN {place}: an operation's inode=7 trace=42"),
            format!(" WARN call{{trace=43}}: {place}: a request's inode=7"),
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn tables_align_numbers_right_and_text_left() {
        let mut table = Table::new(&["name", "size"]);
        table.row(["a".to_owned(), "10".to_owned()]);
        table.row(["long name".to_owned(), "5".to_owned()]);
        assert_eq!(table.render(), "name       size\na            10\nlong name     5\n");
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!([bytes(5), bytes(1536), bytes(3 << 40)], ["5 B", "1.5 KiB", "3.0 TiB"]);
        assert_eq!([millis(5), millis(2_500), millis(u64::MAX)], ["5 ms", "2 s", "never"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |secs| time(Timestamp::from_parts(secs, 0));
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(at(-1), "1969-12-31 23:59:59");
        assert_eq!(at(4_102_444_800), "2100-01-01 00:00:00");
    }

    #[test]
    fn modes_and_names_are_shown_as_by_ls() {
        assert_eq!(mode(FileKind::Directory, Mode(0o1755)), "drwxr-xr-t");
        assert_eq!(mode(FileKind::File, Mode(0o6644)), "-rwSr-Sr--");
        assert_eq!((shown("é".as_bytes()), shown(b"a\n\xff")), ("é".to_owned(), "a\\n\\xff".to_owned()));
    }
}
