//! The answer of one query on its way: the query's thread puts rows in, whoever asks takes pages out.

use braid_api::admin::{SqlBegun, SqlPage, SqlValue};
use braid_api::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

pub type Row = Vec<SqlValue>;

/// A page is full beyond this. A row has at most [`ROW_BYTES_MAX`], so that a page fits a message of 1 MiB.
const PAGE_BYTES: usize = 128 << 10;
pub const ROW_BYTES_MAX: usize = 512 << 10;
/// Full pages that wait to be fetched.
const PAGES_MAX: usize = 4;
/// For so long a page is waited for until it is said that there is none yet.
const POLL: Duration = Duration::from_secs(2);
/// What has been found is told after this time, if it does not fill a page.
const SHOW: Duration = Duration::from_millis(200);
const UNASKED_MAX: Duration = Duration::from_millis(SqlBegun::UNASKED_MS_MAX);

pub struct Cursor {
    state: Mutex<State>,
    deadline: Instant,
    timeout: Duration,
    room: Condvar,
    filled: Notify,
}

struct State {
    columns: Option<Vec<String>>,
    full: VecDeque<Vec<Row>>,
    /// Not full yet.
    filling: Vec<Row>,
    filling_bytes: usize,
    /// The page that was given last, in case its answer was lost.
    given: Option<SqlPage>,
    /// The number of the next.
    next: u64,
    ended: Option<Result<()>>,
    asked: Instant,
    stopped: Option<&'static str>,
}

pub fn bytes_of(row: &Row) -> usize {
    let of = |value: &SqlValue| match value {
        SqlValue::Text(text) => text.len(),
        SqlValue::Blob(bytes) => bytes.len(),
        _ => 0,
    };
    row.iter().map(|value| 12 + of(value)).sum()
}

impl Cursor {
    pub fn new(timeout: Duration) -> Cursor {
        let now = Instant::now();
        let state = State {
            columns: None,
            full: VecDeque::new(),
            filling: Vec::new(),
            filling_bytes: 0,
            given: None,
            next: 0,
            ended: None,
            asked: now,
            stopped: None,
        };
        let (room, filled) = (Condvar::new(), Notify::new());
        Cursor { state: Mutex::new(state), deadline: now + timeout, timeout, room, filled }
    }

    pub fn stop(&self, why: &'static str) {
        self.state.lock().stopped.get_or_insert(why);
        self.room.notify_all();
        self.filled.notify_waiters();
    }

    /// Somebody has asked for it lately.
    pub fn is_wanted(&self) -> bool {
        self.state.lock().asked.elapsed() < UNASKED_MAX
    }

    /// For the query's thread: why it is to end, if it is.
    pub fn why_stop(&self) -> Option<String> {
        let state = self.state.lock();
        if let Some(why) = state.stopped {
            return Some(why.to_owned());
        }
        if Instant::now() >= self.deadline {
            return Some(format!("it ran for longer than {} ms (--timeout)", self.timeout.as_millis()));
        }
        (state.asked.elapsed() >= UNASKED_MAX).then(|| "nobody has asked for more of it for a minute".to_owned())
    }

    pub fn put_columns(&self, columns: Vec<String>) {
        self.state.lock().columns = Some(columns);
        self.filled.notify_waiters();
    }

    /// Puts a row in, if there is room.
    pub fn put(&self, row: Row) -> std::result::Result<(), Row> {
        let mut state = self.state.lock();
        if state.full.len() >= PAGES_MAX {
            return Err(row);
        }
        state.filling_bytes += bytes_of(&row);
        state.filling.push(row);
        let is_first = state.filling.len() == 1;
        let is_full = state.filling_bytes >= PAGE_BYTES;
        if is_full {
            let page = std::mem::take(&mut state.filling);
            state.filling_bytes = 0;
            state.full.push_back(page);
        }
        drop(state);
        if is_first || is_full {
            self.filled.notify_waiters();
        }
        Ok(())
    }

    /// Waits a little for room.
    pub fn wait_for_room(&self, at_most: Duration) {
        let mut state = self.state.lock();
        if state.full.len() >= PAGES_MAX && state.stopped.is_none() {
            self.room.wait_for(&mut state, at_most);
        }
    }

    pub fn finish(&self, result: Result<()>) {
        self.state.lock().ended = Some(result);
        self.filled.notify_waiters();
    }

    /// What the query will answer, or why it cannot.
    pub async fn columns(&self) -> Result<Vec<String>> {
        loop {
            let mut told = std::pin::pin!(self.filled.notified());
            told.as_mut().enable();
            {
                let state = self.state.lock();
                if let Some(columns) = &state.columns {
                    return Ok(columns.clone());
                }
                if let Some(Err(error)) = &state.ended {
                    return Err(error.clone());
                }
            }
            // The thread ends by the deadline, and says so.
            told.await;
        }
    }

    pub async fn page(&self, number: u64) -> Result<SqlPage> {
        let begun = Instant::now();
        loop {
            let mut told = std::pin::pin!(self.filled.notified());
            told.as_mut().enable();
            let shows = begun.elapsed() >= SHOW;
            if let Some(page) = self.state.lock().page(number, shows)? {
                self.room.notify_all();
                return Ok(page);
            }
            if begun.elapsed() >= POLL {
                return Ok(SqlPage { rows: Vec::new(), more: true });
            }
            let patience = if shows { POLL.saturating_sub(begun.elapsed()) } else { SHOW };
            let _ = tokio::time::timeout(patience, told).await;
        }
    }
}

impl State {
    fn page(&mut self, number: u64, shows: bool) -> Result<Option<SqlPage>> {
        self.asked = Instant::now();
        if let (Some(given), true) = (&self.given, number.checked_add(1) == Some(self.next)) {
            return Ok(Some(given.clone()));
        }
        if number != self.next {
            let cause = format_args!("page {number} was asked for, and the next is {}", self.next);
            return Err(Error::new(Code::Invalid, "the query", cause));
        }
        let rows = match self.full.pop_front() {
            Some(rows) => rows,
            None if shows || self.ended.is_some() => {
                self.filling_bytes = 0;
                std::mem::take(&mut self.filling)
            }
            None => Vec::new(),
        };
        let is_all = self.full.is_empty() && self.filling.is_empty();
        let more = match &self.ended {
            // What was found before it failed is told first.
            Some(Err(error)) if rows.is_empty() && is_all => return Err(error.clone()),
            Some(Ok(())) => !is_all,
            _ => true,
        };
        if rows.is_empty() && more {
            return Ok(None);
        }
        let page = SqlPage { rows, more };
        self.next += 1;
        self.given = Some(page.clone());
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: i64) -> Row {
        vec![SqlValue::Integer(n), SqlValue::Text("x".repeat(1000))]
    }

    fn numbers(page: &SqlPage) -> Vec<i64> {
        let number = |row: &Row| match row[0] {
            SqlValue::Integer(n) => n,
            _ => panic!("{row:?}"),
        };
        page.rows.iter().map(number).collect()
    }

    #[tokio::test]
    async fn rows_come_once_and_in_order_however_often_a_page_is_asked_for() {
        let cursor = std::sync::Arc::new(Cursor::new(Duration::from_secs(60)));
        let thread = cursor.clone();
        std::thread::spawn(move || {
            for n in 0..2000 {
                while thread.put(row(n)).is_err() {
                    thread.wait_for_room(Duration::from_millis(100));
                }
            }
            thread.finish(Ok(()));
        });
        let (mut found, mut number) = (Vec::new(), 0);
        loop {
            let page = cursor.page(number).await.unwrap();
            if page.rows.is_empty() && page.more {
                continue;
            }
            assert_eq!(cursor.page(number).await.unwrap(), page, "its answer may have been lost");
            assert!(cursor.page(number + 2).await.is_err());
            found.extend(numbers(&page));
            number += 1;
            if !page.more {
                break;
            }
        }
        assert_eq!(found, (0..2000).collect::<Vec<_>>());
        assert!(number > 10, "{number} pages");
    }

    #[tokio::test]
    async fn what_nobody_fetches_is_bounded_and_an_error_comes_behind_the_rows() {
        let cursor = Cursor::new(Duration::from_secs(60));
        let kept = (0..10_000).take_while(|n| cursor.put(row(*n)).is_ok()).count();
        assert!(kept * 1000 < (PAGES_MAX + 1) * (PAGE_BYTES + 2000), "{kept}");
        cursor.finish(Err(Code::Interrupted.into()));
        let (mut number, mut found) = (0, 0);
        let error = loop {
            match cursor.page(number).await {
                Ok(page) => found += page.rows.len(),
                Err(error) => break error,
            }
            number += 1;
        };
        assert_eq!((found, error.code), (kept, Code::Interrupted));
    }

    #[test]
    fn a_query_is_told_to_end_by_its_deadline_or_by_who_asked() {
        let late = Cursor::new(Duration::ZERO);
        assert!(late.why_stop().unwrap().contains("--timeout"));
        let cursor = Cursor::new(Duration::from_secs(60));
        assert_eq!(cursor.why_stop(), None);
        cursor.stop("enough");
        assert_eq!(cursor.why_stop().as_deref(), Some("enough"));
        let unasked = Cursor::new(Duration::from_secs(600));
        unasked.state.lock().asked = Instant::now() - UNASKED_MAX;
        assert!(unasked.why_stop().unwrap().contains("nobody") && !unasked.is_wanted());
    }
}
