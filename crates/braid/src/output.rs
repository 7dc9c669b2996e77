//! What people see: aligned tables, sizes, and the log.

use std::fmt::Write as _;

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

/// Starts logging to standard error. `BRAID_LOG` wins over the configuration.
pub fn start_log(level: &str) {
    let filter = std::env::var("BRAID_LOG").unwrap_or_else(|_| level.to_owned());
    let filter =
        tracing_subscriber::EnvFilter::try_new(&filter).unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A second start, as in tests, keeps the first.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
