//! Failure domains: what is lost together. Two copies on a disk go with the disk, on a host with the host, in a rack with the rack.

use crate::Candidate;
use braid_types::ServerId;
use std::collections::{BTreeSet, HashMap};

/// Where a data server stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain {
    /// As configured; where none is, all servers are in one.
    pub rack: String,
    pub host: String,
    /// Which disk of its host; 0 if that is not known, and then it is a disk of its own.
    pub disk: u64,
}

/// Whatever their configurations say, servers on one file system are on one disk, and so is whoever says that it is on the disk of one of them.
pub fn unite_disks(candidates: &mut [Candidate]) {
    let mut leads: Vec<usize> = (0..candidates.len()).collect();
    fn lead(leads: &[usize], mut at: usize) -> usize {
        while leads[at] != at {
            at = leads[at];
        }
        at
    }
    let mut first: HashMap<(&str, bool, u64), usize> = HashMap::new();
    for (at, Candidate { domain, filesystem, .. }) in candidates.iter().enumerate() {
        for (is_disk, number) in [(true, domain.disk), (false, *filesystem)] {
            if number != 0 {
                let other = *first.entry((&domain.host, is_disk, number)).or_insert(at);
                let (one, other) = (lead(&leads, at), lead(&leads, other));
                leads[one.max(other)] = one.min(other);
            }
        }
    }
    let disks: Vec<u64> = (0..candidates.len()).map(|at| candidates[lead(&leads, at)].domain.disk).collect();
    candidates.iter_mut().zip(disks).for_each(|(candidate, disk)| candidate.domain.disk = disk);
}

/// How far two servers are apart: nearer ones are less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    SameDisk,
    SameHost,
    SameRack,
    OtherRack,
}

impl Domain {
    /// Servers on one host are in one rack, whatever their configurations say.
    pub(crate) fn distance(&self, other: &Domain) -> Distance {
        match () {
            () if self.host == other.host && self.disk == other.disk && self.disk != 0 => Distance::SameDisk,
            () if self.host == other.host => Distance::SameHost,
            () if self.rack == other.rack => Distance::SameRack,
            () => Distance::OtherRack,
        }
    }

    /// To the nearest of them.
    pub(crate) fn nearest<'a>(&self, others: impl Iterator<Item = &'a Domain>) -> Distance {
        others.map(|other| self.distance(other)).min().unwrap_or(Distance::OtherRack)
    }
}

/// Over how many racks, hosts and disks some servers are spread; more is better, a rack more than any number of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Apart {
    pub racks: usize,
    pub hosts: usize,
    pub disks: usize,
}

impl Apart {
    fn of<'a>(domains: impl Iterator<Item = (ServerId, &'a Domain)>) -> Apart {
        let (mut racks, mut hosts, mut disks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (id, domain) in domains {
            racks.insert(&domain.rack);
            hosts.insert(&domain.host);
            // One that is not known is nobody else's.
            disks.insert((&domain.host, domain.disk, if domain.disk == 0 { id } else { ServerId(0) }));
        }
        Apart { racks: racks.len(), hosts: hosts.len(), disks: disks.len() }
    }
}

/// How far the servers of a chain are apart. One that is not among the candidates counts as a place of its own: nothing is
/// known of it that could be worse.
pub fn apart(chain: &[ServerId], candidates: &[Candidate]) -> Apart {
    let known = candidates.iter().filter(|candidate| chain.contains(&candidate.id));
    let unknown = chain.iter().filter(|id| candidates.iter().all(|candidate| candidate.id != **id)).count();
    let Apart { racks, hosts, disks } = Apart::of(known.map(|candidate| (candidate.id, &candidate.domain)));
    Apart { racks: racks + unknown, hosts: hosts + unknown, disks: disks + unknown }
}

/// The best that a chain of so many servers could be, of those that take something.
pub fn apart_at_best(chain_len: usize, candidates: &[Candidate]) -> Apart {
    let usable = candidates.iter().filter(|candidate| candidate.up && candidate.takes_new);
    let Apart { racks, hosts, disks } = Apart::of(usable.map(|candidate| (candidate.id, &candidate.domain)));
    Apart { racks: racks.min(chain_len), hosts: hosts.min(chain_len), disks: disks.min(chain_len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, candidate};

    #[test]
    fn a_disk_is_nearer_than_a_host_and_a_host_than_a_rack() {
        let one = at("r1", "a", 5);
        assert_eq!(one.distance(&at("r1", "a", 5)), Distance::SameDisk);
        assert_eq!(one.distance(&at("r1", "a", 6)), Distance::SameHost);
        assert_eq!(one.distance(&at("r1", "b", 5)), Distance::SameRack, "disks have numbers of their hosts");
        assert_eq!(one.distance(&at("r2", "b", 5)), Distance::OtherRack);
        assert_eq!(at("r1", "a", 0).distance(&at("r1", "a", 0)), Distance::SameHost, "not known to be the same");
        assert_eq!(one.distance(&at("r2", "a", 6)), Distance::SameHost, "a host is in one rack");
    }

    #[test]
    fn servers_on_one_file_system_are_on_one_disk_whatever_they_say() {
        let one = |id, host, disk, filesystem| Candidate { filesystem, ..candidate(id, at("", host, disk), 1) };
        let mut all = [
            one(1, "a", 7, 7),
            // Named, on the same file system; and another partition of the disk of that name.
            one(2, "a", 90, 7),
            one(3, "a", 90, 8),
            one(4, "a", 9, 9),
            // Of another host, and such that are not known.
            one(5, "b", 7, 7),
            one(6, "a", 0, 0),
            one(7, "a", 0, 0),
        ];
        unite_disks(&mut all);
        assert_eq!(all.each_ref().map(|candidate| candidate.domain.disk), [7, 7, 7, 9, 7, 0, 0]);
    }

    #[test]
    fn what_a_chain_is_spread_over_is_compared_with_what_there_is() {
        let all: Vec<Candidate> = [("r1", "a"), ("r1", "b"), ("r2", "c"), ("r3", "d")]
            .iter()
            .enumerate()
            .map(|(i, (rack, host))| candidate(i as u64 + 1, at(rack, host, 1), 100))
            .collect();
        let ids = |list: &[u64]| list.iter().copied().map(ServerId).collect::<Vec<_>>();
        assert_eq!(apart(&ids(&[1, 2, 3]), &all), Apart { racks: 2, hosts: 3, disks: 3 });
        assert_eq!(apart_at_best(3, &all), Apart { racks: 3, hosts: 3, disks: 3 });
        assert_eq!(apart_at_best(2, &all), Apart { racks: 2, hosts: 2, disks: 2 });
        assert!(apart(&ids(&[1, 3, 4]), &all) > apart(&ids(&[1, 2, 3]), &all));
        let mut less = all.clone();
        less[3].up = false;
        assert_eq!(apart_at_best(3, &less), apart(&ids(&[1, 2, 3]), &less), "no better one is up");
    }
}
