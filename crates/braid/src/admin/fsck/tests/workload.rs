//! Random operations on the namespace and on chunks, as several clients would do them.

use super::world::{ROOT, World, name, spec};
use braid_api::meta::*;
use braid_types::*;
use std::collections::BTreeSet;

/// A small generator: the operations matter, not their distribution.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

pub fn truncate(id: InodeId, size: u64) -> ChangeAttr {
    ChangeAttr {
        inode: id.into(),
        mode: None,
        uid: None,
        gid: None,
        size: Some(size),
        atime: None,
        mtime: None,
        kill_privileges: false,
        cuts_applied: TruncGen(0),
    }
}

/// One random operation. Few names, so that many of them meet; that most fail somehow is fine.
async fn step(w: &World, dice: &mut Dice, dirs: &mut BTreeSet<InodeId>, files: &mut BTreeSet<InodeId>) {
    let known: Vec<InodeId> = dirs.iter().copied().collect();
    let (dir, other) = (dice.pick(&known), dice.pick(&known));
    let (one, two) = (name(&format!("n{}", dice.below(6))), name(&format!("n{}", dice.below(6))));
    match dice.below(16) {
        0 | 1 => {
            let make = MakeNode { parent: dir.into(), name: one, spec: spec(FileKind::Directory) };
            if let Ok(made) = w.call(make).await {
                dirs.insert(made.attr.id);
            }
        }
        2..=4 => {
            let spec = spec(FileKind::File);
            let make =
                CreateFile { parent: dir.into(), name: one, spec, exclusive: false, truncate: false, write: true };
            if let Ok(made) = w.call(make).await {
                files.insert(made.attr.id);
            }
        }
        5 => {
            let Some(&inode) = files.iter().nth(dice.below(files.len().max(1) as u64) as usize) else { return };
            let _ = w.call(Link { inode: inode.into(), parent: dir.into(), name: one }).await;
        }
        6..=8 => {
            let mode = dice.pick(&[RenameKind::Replace, RenameKind::Replace, RenameKind::Exchange]);
            let rename = Rename {
                from: dir.into(),
                from_name: one,
                to: other.into(),
                to_name: two,
                mode,
                open_here: dice.below(2) == 0,
            };
            let _ = w.call(rename).await;
        }
        9 | 10 => {
            let _ = w.call(Unlink { parent: dir.into(), name: one, open_here: dice.below(2) == 0 }).await;
        }
        11 => {
            if dir != ROOT && w.call(RemoveDir { parent: dir.into(), name: one, tree: false }).await.is_ok() {
                let mut gone = Vec::new();
                for id in &known {
                    if w.attr(*id).await.is_err() {
                        gone.push(*id);
                    }
                }
                dirs.retain(|id| !gone.contains(id));
            }
        }
        _ => {
            let Some(&inode) = files.iter().nth(dice.below(files.len().max(1) as u64) as usize) else { return };
            let _ = bytes(w, dice, inode).await;
        }
    }
}

/// Writes or truncates a file.
async fn bytes(w: &World, dice: &mut Dice, inode: InodeId) -> braid_api::Result<()> {
    let attr = w.attr(inode).await?;
    if dice.below(3) > 0 {
        let count = 1 + dice.below(3) as u32;
        w.extend(&attr, dice.below(4), count).await?;
        return Ok(());
    }
    let size = dice.below(3) * CHUNK_BYTES_DEFAULT + dice.below(200);
    let attr = w.call(truncate(inode, size)).await?.attr;
    // The data servers cut, and then the metadata server may forget the cut.
    let map = w.call(GetMap { inode: inode.into(), first: ChunkIndex(0) }).await?.map;
    if let Content::Chunked(page) = map.content {
        for chunk in page.chunks {
            let container = page.containers.iter().find(|c| c.id == chunk.container);
            let node = w.peers.get(container.map_or(ServerId(1), |c| c.chain[0]));
            node.cut(chunk.chunk, size.saturating_sub(chunk.index.0 * CHUNK_BYTES_DEFAULT), attr.trunc_gen);
        }
    }
    w.commit(&attr, 0, CommitContent::Unchanged).await?;
    Ok(())
}

pub async fn run(w: &World, seed: u64, steps: usize) {
    let mut dice = Dice::new(seed);
    let (mut dirs, mut files) = (BTreeSet::from([ROOT]), BTreeSet::new());
    for _ in 0..steps {
        step(w, &mut dice, &mut dirs, &mut files).await;
    }
}
