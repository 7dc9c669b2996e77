//! Rows of a query as a table, as JSON or as comma-separated values, printed as they come.

use crate::output::shown;
use crate::say;
use braid_api::admin::SqlValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Columns are as wide as the first rows need.
    Table,
    /// An object a line.
    Json,
    Csv,
}

pub struct Printer {
    form: Form,
    columns: Vec<String>,
    /// Of a table, as soon as they are known.
    widths: Option<Vec<Width>>,
}

struct Width {
    chars: usize,
    /// A number in each of the first rows.
    is_number: bool,
}

impl Printer {
    pub fn new(form: Form, columns: Vec<String>) -> Printer {
        Printer { form, columns, widths: None }
    }

    /// Also none, of an answer without rows: it has a head.
    pub fn rows(&mut self, rows: &[Vec<SqlValue>]) {
        let text = self.render(rows);
        say::out_bytes(&[text.as_bytes()]);
    }

    fn render(&mut self, rows: &[Vec<SqlValue>]) -> String {
        match self.form {
            Form::Json => rows.iter().map(|row| self.object(row)).collect(),
            Form::Csv => {
                let head = self.begin(|_| Vec::new()).then(|| line(self.columns.iter().map(|name| quoted(name))));
                let cells = |row: &Vec<SqlValue>| line(row.iter().map(|value| quoted(&csv(value))));
                head.into_iter().chain(rows.iter().map(cells)).collect()
            }
            Form::Table => {
                let cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(plain).collect()).collect();
                let head = self.begin(|columns| widths(columns, rows, &cells)).then(|| self.aligned(&self.columns));
                head.into_iter().chain(cells.iter().map(|row| self.aligned(row))).collect()
            }
        }
    }

    /// Whether this is the first time.
    fn begin(&mut self, widths: impl FnOnce(&[String]) -> Vec<Width>) -> bool {
        let is_first = self.widths.is_none();
        if is_first {
            self.widths = Some(widths(&self.columns));
        }
        is_first
    }

    fn aligned(&self, cells: &[String]) -> String {
        let mut text = String::new();
        let widths = self.widths.as_deref().unwrap_or_default();
        for (number, (cell, width)) in cells.iter().zip(widths).enumerate() {
            text.push_str(if number == 0 { "" } else { "  " });
            let missing = " ".repeat(width.chars.saturating_sub(cell.chars().count()));
            let pieces = if width.is_number { [missing.as_str(), cell] } else { [cell.as_str(), &missing] };
            pieces.into_iter().for_each(|piece| text.push_str(piece));
        }
        format!("{}\n", text.trim_end())
    }

    fn object(&self, row: &[SqlValue]) -> String {
        let pair =
            |(name, value): (&String, &SqlValue)| format!("{}:{}", serde_json::Value::from(name.as_str()), json(value));
        let pairs: Vec<String> = self.columns.iter().zip(row).map(pair).collect();
        format!("{{{}}}\n", pairs.join(","))
    }
}

fn widths(columns: &[String], rows: &[Vec<SqlValue>], cells: &[Vec<String>]) -> Vec<Width> {
    let of = |(number, name): (usize, &String)| {
        let longest = cells.iter().filter_map(|row| row.get(number)).map(|cell| cell.chars().count()).max();
        let values = || rows.iter().filter_map(|row| row.get(number)).filter(|value| **value != SqlValue::Null);
        let is_number = |value: &SqlValue| matches!(value, SqlValue::Integer(_) | SqlValue::Real(_));
        Width {
            chars: longest.unwrap_or(0).max(name.chars().count()),
            is_number: values().next().is_some() && values().all(is_number),
        }
    };
    columns.iter().enumerate().map(of).collect()
}

fn json(value: &SqlValue) -> serde_json::Value {
    match value {
        SqlValue::Null => serde_json::Value::Null,
        SqlValue::Integer(n) => (*n).into(),
        // JSON has no infinity: null.
        SqlValue::Real(n) => (*n).into(),
        SqlValue::Text(text) => text.as_str().into(),
        SqlValue::Blob(bytes) => serde_json::json!({ "hex": hex(bytes) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plain(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "NULL".to_owned(),
        SqlValue::Integer(n) => n.to_string(),
        SqlValue::Real(n) => format!("{n:?}"),
        SqlValue::Text(text) => shown(text.as_bytes()),
        SqlValue::Blob(bytes) => format!("X'{}'", hex(bytes)),
    }
}

fn csv(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => String::new(),
        SqlValue::Text(text) => text.clone(),
        other => plain(other),
    }
}

/// As RFC 4180 has it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("{}\n", cells.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<SqlValue>> {
        let text = |text: &str| SqlValue::Text(text.into());
        vec![
            vec![text("/a"), SqlValue::Integer(5), SqlValue::Real(1.0), SqlValue::Null],
            vec![text("/b, \"c\"\n"), SqlValue::Integer(1234), SqlValue::Real(2.5), SqlValue::Blob(vec![0x2f, 0xff])],
        ]
    }

    fn printed(form: Form) -> String {
        let mut printer = Printer::new(form, ["path", "n", "real", "x"].map(str::to_owned).into());
        let rows = rows();
        [printer.render(&rows[..1]), printer.render(&rows[1..]), printer.render(&[])].concat()
    }

    #[test]
    fn each_form_shows_the_same_rows() {
        assert_eq!(
            printed(Form::Table),
            concat!("path  n  real  x\n", "/a    5   1.0  NULL\n", r#"/b, \"c\"\n  1234   2.5  X'2fff'"#, "\n")
        );
        assert_eq!(printed(Form::Csv), "path,n,real,x\n/a,5,1.0,\n\"/b, \"\"c\"\"\n\",1234,2.5,X'2fff'\n");
        let json = printed(Form::Json);
        let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], serde_json::json!({ "path": "/a", "n": 5, "real": 1.0, "x": null }));
        assert_eq!(lines[1]["path"], "/b, \"c\"\n");
        assert_eq!(lines[1]["x"], serde_json::json!({ "hex": "2fff" }));
        assert!(json.starts_with("{\"path\":\"/a\",\"n\":5,"), "in the order of the query: {json}");
    }

    #[test]
    fn a_table_of_no_rows_has_its_head() {
        let none = |form| Printer::new(form, vec!["path".into(), "size".into()]).render(&[]);
        assert_eq!([none(Form::Table), none(Form::Csv), none(Form::Json)], ["path  size\n", "path,size\n", ""]);
    }
}
