//! One connection to the database: messages of statements and their results, each within a deadline.

use crate::failure::{Cause, Failed};
use crate::options::{Address, SqlOptions};
use crate::select::Cells;
use crate::settle::Mark;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Statements that go out together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub text: String,
    pub statements: usize,
}

impl Message {
    pub fn of(statements: impl IntoIterator<Item = impl AsRef<str>>) -> Message {
        let mut message = Message::default();
        statements.into_iter().for_each(|statement| message.push(statement.as_ref()));
        message
    }

    pub fn push(&mut self, statement: &str) {
        self.text.push_str(if self.statements > 0 { ";" } else { "" });
        self.text.push_str(statement);
        self.statements += 1;
    }
}

/// What one statement did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Done {
    pub rows: Vec<Cells>,
    /// Rows it changed.
    pub changed: u64,
}

pub(crate) struct Session {
    /// Gone when it has been closed.
    conn: Option<Conn>,
    answer_deadline: Duration,
    /// A message is under way: whoever sees this has been cut off in the middle, and the answer will be another one's.
    under_way: bool,
    /// Which of the addresses it is connected to.
    pub address: usize,
    pub mark: Mark,
    pub born: Instant,
}

impl Session {
    /// A connection to this server, with `database` as its own if given. Nothing is set up.
    pub async fn connect(options: &SqlOptions, address: usize, database: bool) -> Result<Session, Cause> {
        let opts = OptsBuilder::default()
            .user(Some(options.user.as_str()))
            .pass(options.password.as_deref())
            .db_name(database.then_some(options.database.as_str()))
            .tcp_nodelay(true)
            // Not to be asked for by a message of its own. Our messages are cut to what the server says it takes.
            .max_allowed_packet(Some(1 << 30))
            .wait_timeout(Some(8 * 3600))
            // Else a connection to this host goes on over a socket, past any proxy.
            .prefer_socket(false)
            .stmt_cache_size(0);
        let opts = match &options.addresses[address] {
            Address::Tcp { host, port } => opts.ip_or_hostname(host.as_str()).tcp_port(*port),
            Address::Socket(path) => opts.socket(Some(path.to_string_lossy())),
        };
        let told = |cause| match cause {
            Cause::Lost(why) => Cause::Lost(format!("{}: {why}", options.addresses[address])),
            other => other,
        };
        let conn = timeout(options.connect_deadline, Conn::new(opts)).await;
        let conn = conn.map_err(|_| told(Cause::no_answer(options.connect_deadline)))?;
        Ok(Session {
            conn: Some(conn.map_err(|error| told(Cause::of(error)))?),
            answer_deadline: options.answer_deadline,
            under_way: false,
            address,
            mark: Mark::none(),
            born: Instant::now(),
        })
    }

    /// Sends a message, whose statements are carried out in order up to the first that fails.
    pub async fn run(&mut self, message: &Message) -> Result<Vec<Done>, Failed> {
        let mut done = Vec::new();
        let Some(conn) = self.conn.as_mut() else {
            return Err(Failed { done: 0, cause: Cause::Lost("the connection was closed".into()) });
        };
        self.under_way = true;
        let ran = timeout(self.answer_deadline, answers(conn, message, &mut done)).await;
        let cause = match ran {
            Ok(Ok(())) => {
                self.under_way = false;
                return Ok(done);
            }
            Ok(Err(error)) => Cause::of(error),
            Err(_) => Cause::no_answer(self.answer_deadline),
        };
        // After what the server says itself the connection is in order.
        self.under_way = cause.is_lost();
        Err(Failed { done: done.len(), cause })
    }

    pub fn is_usable(&self) -> bool {
        self.conn.is_some() && !self.under_way
    }
}

/// Closes the connection without waiting for what it may still have to say. A transaction that is open in it ends.
impl Drop for Session {
    fn drop(&mut self) {
        let (Some(conn), Ok(runtime)) = (self.conn.take(), tokio::runtime::Handle::try_current()) else { return };
        // The driver would first read all that is to come, however long that takes.
        runtime.spawn(timeout(Duration::from_secs(1), conn.disconnect()));
    }
}

async fn answers(conn: &mut Conn, message: &Message, done: &mut Vec<Done>) -> Result<(), mysql_async::Error> {
    let mut result = conn.query_iter(message.text.as_str()).await?;
    for _ in 0..message.statements {
        let changed = result.affected_rows();
        let mut rows = Vec::new();
        // The driver keeps the failure of a statement until its own result is asked for.
        while let Some(row) = result.next().await? {
            rows.push(row.unwrap_raw().into_iter().flatten().collect());
        }
        done.push(Done { rows, changed });
    }
    Ok(())
}
