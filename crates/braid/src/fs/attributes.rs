//! Attributes for scripts.

use braid_types::Attr;
use serde::Serialize;

/// One line of `--json`. Times are nanoseconds since 1970.
#[derive(Serialize)]
pub struct AttrJson {
    pub path: String,
    pub inode: u64,
    pub kind: &'static str,
    /// As octal digits.
    pub mode: String,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub occupied: u64,
    pub sealed: bool,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub atime_ns: i64,
    pub btime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl AttrJson {
    pub fn new(path: impl ToString, attr: &Attr) -> Self {
        AttrJson {
            path: path.to_string(),
            inode: attr.id.0,
            kind: attr.kind.word(),
            mode: format!("{:04o}", attr.mode.0),
            links: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            occupied: attr.blocks * 512,
            sealed: attr.sealed,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
            atime_ns: attr.atime.0,
            btime_ns: attr.btime.0,
            target: None,
        }
    }
}

pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}
