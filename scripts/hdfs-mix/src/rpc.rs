//! Hadoop's RPC, version 9, without authentication: as much of it as one client needs that has one request under way.
//!
//! Protocol buffers are written and read by hand: a dozen small messages, and nothing is decoded but what is looked at.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// Larger answers are refused: a listing of a thousand files is 100 KiB.
const ANSWER_BYTES_MAX: u32 = 64 << 20;

/// A protocol buffer that grows.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Message {
        Message::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub fn text(self, field: u32, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    pub fn message(self, field: u32, value: &Message) -> Message {
        self.bytes(field, &value.0)
    }

    /// With its length before it.
    fn delimited(&self) -> Vec<u8> {
        let mut length = Message::new();
        length.varint(self.0.len() as u64);
        length.0.extend_from_slice(&self.0);
        length.0
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order; ends at what it cannot read.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(first & 0x7f).checked_shl(shift)?;
            shift += 7;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn delimited(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length)
    }

    pub fn number(self, field: u32) -> Option<u64> {
        self.into_iter().find_map(|(at, value)| match value {
            Value::Number(number) if at == field => Some(number),
            _ => None,
        })
    }

    pub fn messages(self, field: u32) -> impl Iterator<Item = Fields<'a>> {
        self.into_iter().filter_map(move |(at, value)| match value {
            Value::Bytes(bytes) if at == field => Some(Fields(bytes)),
            _ => None,
        })
    }

    pub fn message(self, field: u32) -> Option<Fields<'a>> {
        self.messages(field).next()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<(u32, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            2 => Value::Bytes(self.delimited()?),
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some(((key >> 3) as u32, value))
    }
}

pub struct Connection {
    stream: BufReader<TcpStream>,
    client: [u8; 16],
    calls: u32,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Connection {
    /// `number` is no other client's.
    pub async fn open(namenode: &str, user: &str, number: u64) -> Result<Connection, String> {
        let stream = TcpStream::connect(namenode).await.map_err(|e| format!("{namenode}: {e}"))?;
        stream.set_nodelay(true).map_err(text)?;
        let mut client = [0; 16];
        client[..8].copy_from_slice(&number.to_be_bytes());
        client[8..].copy_from_slice(&u64::from(std::process::id()).to_be_bytes());
        let mut connection = Connection { stream: BufReader::new(stream), client, calls: 0 };
        // Version 9, no class of service, no authentication.
        let mut hello = b"hrpc\x09\x00\x00".to_vec();
        let who = Message::new().message(2, &Message::new().text(1, user)).text(3, PROTOCOL);
        // The number that this message has instead of a call's is -3.
        hello.extend(frame(&[connection.header(5), who]));
        connection.stream.write_all(&hello).await.map_err(text)?;
        Ok(connection)
    }

    fn header(&self, zigzag_call: u64) -> Message {
        // Kind 2 is protocol buffers, operation 0 a whole request.
        Message::new().number(1, 2).number(2, 0).number(3, zigzag_call).bytes(4, &self.client)
    }

    /// The answer's bytes.
    pub async fn call(&mut self, method: &str, request: &Message) -> Result<Vec<u8>, String> {
        self.calls += 1;
        let header = self.header(u64::from(self.calls) << 1);
        let about = Message::new().text(1, method).text(2, PROTOCOL).number(3, 1);
        self.stream.write_all(&frame(&[header, about, request.clone()])).await.map_err(text)?;
        let length = self.stream.read_u32().await.map_err(text)?;
        if length > ANSWER_BYTES_MAX {
            return Err(format!("{method}: an answer of {length} bytes"));
        }
        let mut answer = vec![0; length as usize];
        self.stream.read_exact(&mut answer).await.map_err(text)?;
        let mut fields = Fields(&answer);
        let header = Fields(fields.delimited().ok_or("an answer without a header")?);
        if header.number(1) != Some(u64::from(self.calls)) {
            return Err(format!("{method}: the answer to another call"));
        }
        if header.number(2) != Some(0) {
            let said =
                |field| header.message(field).map_or(String::new(), |m| String::from_utf8_lossy(m.0).into_owned());
            let (class, message) = (said(4), said(5));
            return Err(format!("{method}: {class}: {}", message.lines().next().unwrap_or_default()));
        }
        Ok(fields.delimited().unwrap_or_default().to_vec())
    }
}

/// Length, and each message with its own.
fn frame(messages: &[Message]) -> Vec<u8> {
    let body: Vec<u8> = messages.iter().flat_map(Message::delimited).collect();
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inner = Message::new().number(1, 300).text(2, "path");
        let outer = Message::new().message(3, &inner).number(4, 0).number(5, u64::MAX);
        let fields = Fields(&outer.0);
        let found = fields.message(3).unwrap();
        assert_eq!((found.number(1), found.message(2).unwrap().0), (Some(300), &b"path"[..]));
        assert_eq!((fields.number(4), fields.number(5), fields.number(6)), (Some(0), Some(u64::MAX), None));
        for cut in 0..outer.0.len() {
            assert!(Fields(&outer.0[..cut]).count() < 3, "what is cut off has an end");
        }
    }
}
