//! `inodes`: every file, directory and other inode once, however many names it has.

use crate::QueryError;
use crate::cell::{self, flag, number, or_null, text as bytes, time, word};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer, real, text};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{Entry, IdRow, InlineState, Inode, RowFormat, flags};
use braid_types::{FileKind, InodeId, Policy};

/// The columns of an inode, here and in `files`.
pub const COLUMNS: &[Column] = &[
    integer("id", "number of the inode, for ever"),
    text("kind", "file, directory, symlink, fifo, socket, char-device or block-device"),
    integer("mode", "permission bits, with setuid, setgid and sticky"),
    text("mode_octal", "the same as chmod takes it: 0644"),
    integer("uid", "number of the owner"),
    integer("gid", "number of the group"),
    integer("nlink", "names of a file; of a directory 2 and its subdirectories"),
    integer("size", "bytes of a file, or of a symlink's target; else 0"),
    integer("entries", "names in a directory; else NULL"),
    real("atime", "last read, as far as it is kept; seconds since 1970"),
    real("mtime", "last change of the content; seconds since 1970"),
    real("ctime", "last change of anything; seconds since 1970"),
    real("btime", "when it was made; seconds since 1970"),
    integer("rdev", "device number of a device; else 0"),
    integer("inline", "1 if its bytes lie beside its row and in no chunk"),
    integer("sealed", "1 if nothing of the file changes"),
    text("policy", "of a file the one it was made under, of a directory the one for what is made in it; else NULL"),
    integer("policy_root", "the directory whose policy that is, or was when it was made"),
    integer("chunk_bytes", "size of the chunks that the policy says"),
    text("target", "what a symlink says; else NULL"),
];

fn policy(inode: &Inode, source: &mut Source) -> Result<Option<Policy>, QueryError> {
    match (inode.kind, inode.policy) {
        (FileKind::File, Some(policy)) => Ok(Some(policy)),
        (FileKind::File | FileKind::Directory, _) => source.policy_in_force(inode),
        _ => Ok(None),
    }
}

/// A column of an inode.
pub fn cell(inode: &Inode, column: usize, source: &mut Source) -> Result<SqlValue, QueryError> {
    Ok(match COLUMNS.get(column).map_or("", |column| column.name) {
        "id" => number(inode.id.0),
        "kind" => word(inode.kind.word()),
        "mode" => number(inode.mode.0.into()),
        "mode_octal" => word(format_args!("{:04o}", inode.mode.0)),
        "uid" => number(inode.uid.into()),
        "gid" => number(inode.gid.into()),
        "nlink" => number(inode.nlink.into()),
        "size" => number(match inode.kind {
            FileKind::File => inode.size,
            FileKind::Symlink => inode.target.len() as u64,
            _ => 0,
        }),
        // The row of a directory counts them where that of a file has its bytes.
        "entries" => or_null(inode.is_dir().then_some(inode.size), number),
        "atime" => time(inode.atime),
        "mtime" => time(inode.mtime),
        "ctime" => time(inode.ctime),
        "btime" => time(inode.btime),
        "rdev" => number(inode.rdev.0.into()),
        "inline" => flag(inode.inline != InlineState::None),
        "sealed" => flag(inode.has(flags::SEALED)),
        "policy" => or_null(policy(inode, source)?, word),
        "policy_root" => number(inode.policy_root.0),
        "chunk_bytes" => or_null(policy(inode, source)?, |policy| number(policy.chunk_bytes)),
        "target" => or_null((inode.kind == FileKind::Symlink).then_some(&inode.target), |target| bytes(target)),
        _ => SqlValue::Null,
    })
}

pub struct Inodes;

pub enum Scan {
    One(Option<Box<Inode>>),
    /// First what has its attributes beside its name, then what has had several names.
    All(Box<Whole>),
}

pub struct Whole {
    named: Pages,
    apart: Pages,
}

impl Relation for Inodes {
    const NAME: &'static str = "inodes";
    const ABOUT: &'static str = "every inode once, those that have lost their last name and are still open among them";
    const KEY: &'static str = "id";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 1.0)];
    const ROWS: f64 = 1e7;

    type Scan = Scan;
    type Row = Box<Inode>;

    fn columns() -> Vec<Column> {
        COLUMNS.to_vec()
    }

    fn begin(source: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Scan, QueryError> {
        if way.is_none() {
            let (named, apart) = (Pages::whole(Table::Inodes), Pages::whole(Table::InodeIds));
            return Ok(Scan::All(Box::new(Whole { named, apart })));
        }
        let found = match args.first().and_then(cell::as_id) {
            Some(id) => source.inode(InodeId(id))?,
            None => None,
        };
        Ok(Scan::One(found.map(Box::new)))
    }

    fn next(scan: &mut Scan, source: &mut Source) -> Result<Option<Box<Inode>>, QueryError> {
        let Whole { named, apart } = match scan {
            Scan::One(inode) => return Ok(inode.take()),
            Scan::All(whole) => &mut **whole,
        };
        while let Some((key, row)) = named.next(source)? {
            if let Entry::Here(inode) = Entry::decode(&key, &row)? {
                return Ok(Some(Box::new(inode)));
            }
        }
        while let Some((key, row)) = apart.next(source)? {
            if let IdRow::Attributes(inode) = IdRow::decode(&key, &row)? {
                return Ok(Some(Box::new(inode)));
            }
        }
        Ok(None)
    }

    fn cell(row: &Box<Inode>, column: usize, source: &mut Source) -> Result<SqlValue, QueryError> {
        cell(row, column, source)
    }
}
