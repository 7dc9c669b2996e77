//! What `braid admin add --plan` says: where the servers would be, what room they would have there, and how much would move to them.

use super::{Cluster, rebalance};
use crate::local::Layout;
use crate::local::servers::{self, Own};
use crate::output::{Table, bytes};
use crate::roles::place;
use anyhow::{Context, Result};
use braid_data_store::spare_bytes;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A server that would be.
pub struct Planned<'a> {
    pub name: &'a str,
    pub own: &'a Own,
    pub dir: &'a Path,
}

/// A file system: what is free there, and what the servers that are on it have of chunks and could have more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    free: u64,
    servers: u64,
    capacity: u64,
}

/// Of this much that the servers have of chunks, the fair share of each new one: its part of all capacity. Servers that share a file system
/// have equal parts of it, whenever they came.
fn shares(total: u64, capacity: u64, rooms: &BTreeMap<u64, Room>, new: &[u64]) -> Vec<u64> {
    let count = |at: u64| new.iter().filter(|other| **other == at).count() as u64;
    let more: u64 =
        rooms.iter().filter(|(at, room)| room.servers == 0 && count(**at) > 0).map(|(_, room)| room.free).sum();
    let all = u128::from(capacity) + u128::from(more);
    let share = |at: &u64| {
        let room = rooms.get(at).copied().unwrap_or_default();
        let own = if room.servers == 0 { room.free } else { room.capacity } / (room.servers + count(*at)).max(1);
        (u128::from(total) * u128::from(own)).checked_div(all).unwrap_or(0) as u64
    };
    new.iter().map(share).collect()
}

/// The number of the file system, and what is free on it, of a directory that need not be there yet.
fn filesystem(dir: &Path) -> Result<(u64, u64)> {
    let there = place::nearest(dir);
    let cannot = || format!("cannot look at {}", there.display());
    let disk = rustix::fs::statvfs(there).with_context(cannot)?;
    // A server leaves something to others, as what it says of its room does.
    let spare = spare_bytes(disk.f_blocks * disk.f_frsize);
    Ok((there.metadata().with_context(cannot)?.dev(), (disk.f_bavail * disk.f_frsize).saturating_sub(spare)))
}

pub async fn show(cluster: &Cluster, layout: &Layout, new: &[Planned<'_>], as_json: bool) -> Result<()> {
    let seen = rebalance::look(cluster, None).await?;
    let total = seen.fills.iter().map(|fill| fill.bytes_now).sum();
    let capacity = seen.fills.iter().map(|fill| fill.capacity).sum();
    let mut rooms: BTreeMap<u64, Room> = BTreeMap::new();
    for fill in &seen.fills {
        // One that is elsewhere shares nothing with those that are here.
        let Some(name) = servers::with_id(layout, fill.server) else { continue };
        let (at, free) = filesystem(&servers::dir(layout, &name, &Own::read(layout, &name)?))?;
        let room = rooms.entry(at).or_default();
        *room = Room { free, servers: room.servers + 1, capacity: room.capacity + fill.capacity };
    }
    let mut places = Vec::new();
    for planned in new {
        let (at, free) = filesystem(planned.dir)?;
        rooms.entry(at).or_default().free = free;
        places.push((at, free));
    }
    let at: Vec<u64> = places.iter().map(|(at, _)| *at).collect();
    let shares = shares(total, capacity, &rooms, &at);
    if as_json {
        for ((planned, (_, free)), share) in new.iter().zip(&places).zip(&shares) {
            let it = serde_json::json!({
                "name": planned.name,
                "dir": planned.dir.display().to_string(),
                "rack": planned.own.rack,
                "disk": planned.own.disk,
                "bytes_free": free,
                "bytes_fair": share,
            });
            println!("{it}");
        }
        return Ok(());
    }
    let mut table = Table::new(&["name", "rack", "disk", "free", "fair share", "directory"]);
    for ((planned, (_, free)), share) in new.iter().zip(&places).zip(&shares) {
        let said = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        let (rack, disk) = (said(&planned.own.rack), said(&planned.own.disk));
        let dir = planned.dir.display().to_string();
        table.row([planned.name.to_owned(), rack, disk, bytes(*free), bytes(*share), dir]);
    }
    table.print();
    let moves: u64 = shares.iter().sum();
    let seconds = moves.checked_div(seen.move_rate).unwrap_or(0).max(u64::from(moves > 0));
    println!(
        "\nNothing was done. With --rebalance about {} of {} would move there, in {seconds} s at {} a second (braid admin rebalance --rate); \
         without it they get new chunks alone.",
        bytes(moves),
        bytes(total),
        bytes(seen.move_rate)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_part_of_all_capacity() {
        let empty = |free| Room { free, ..Room::default() };
        // Two servers with 100 each of a file system of their own, 60 in all; the third has as much as one of them.
        let of_two = BTreeMap::from([
            (1, Room { free: 70, servers: 1, capacity: 100 }),
            (2, Room { free: 70, servers: 1, capacity: 100 }),
            (3, empty(100)),
        ]);
        assert_eq!(shares(60, 200, &of_two, &[3]), [20]);
        // Beside one that is there: no capacity more, of which each has a half.
        assert_eq!(shares(60, 200, &of_two, &[2]), [15]);
        // Two on one new file system share it; nothing is there to be moved, and nothing at all is there.
        assert_eq!(shares(60, 200, &of_two, &[3, 3]), [10, 10]);
        assert_eq!(shares(0, 200, &of_two, &[3]), [0]);
        assert_eq!(shares(0, 0, &BTreeMap::from([(3, empty(0))]), &[3]), [0]);
    }
}
