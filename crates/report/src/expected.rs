//! What a data server should have, and the questions that lead to what differs.

use crate::{Mixer, View, buckets_for, shelves_for};
use braid_types::{ChunkId, ContainerId, ReportAsk, ReportPart, Tally};
use std::collections::{BTreeMap, BTreeSet};

/// Chunks that may be there or not of which all combinations are tried: 256.
const TRIED_MAX: usize = 8;

/// The answer does not fit the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange;

#[derive(Clone, Debug)]
struct Container {
    tally: Tally,
    may: Vec<u64>,
}

/// Of one data server.
#[derive(Clone, Debug)]
pub struct Expected {
    mixer: Mixer,
    shelves: u32,
    containers: BTreeMap<ContainerId, Container>,
}

impl Expected {
    /// These containers of the view are there.
    pub fn of(view: &View, mixer: Mixer, containers: impl IntoIterator<Item = ContainerId>) -> Expected {
        let one = |id: ContainerId| {
            let may = view.may(id).map(|chunk| mixer.number(id, chunk)).collect();
            (id, Container { tally: view.tally(id), may })
        };
        let containers: BTreeMap<ContainerId, Container> = containers.into_iter().map(one).collect();
        Expected { mixer, shelves: shelves_for(containers.len()), containers }
    }

    /// Is all of it there, and nothing else?
    pub fn fits(&self, part: &ReportPart) -> Result<bool, Strange> {
        let ReportPart::All(theirs) = part else { return Err(Strange) };
        let mut ours = Tally::default();
        self.containers.values().for_each(|container| ours.merge(container.tally));
        let may = self.containers.values().flat_map(|container| &container.may);
        Ok(explains(theirs.without(ours), may))
    }

    pub fn ask_shelves(&self) -> ReportAsk {
        ReportAsk::Shelves { shelves: self.shelves }
    }

    /// The shelves that differ.
    pub fn shelves(&self, part: &ReportPart) -> Result<Vec<u32>, Strange> {
        let ReportPart::Shelves(theirs) = part else { return Err(Strange) };
        if theirs.len() != self.shelves as usize {
            return Err(Strange);
        }
        let mut ours: Vec<(Tally, Vec<u64>)> = vec![Default::default(); theirs.len()];
        for (id, container) in &self.containers {
            let (tally, may) = &mut ours[self.mixer.shelf(*id, self.shelves) as usize];
            tally.merge(container.tally);
            may.extend(&container.may);
        }
        let pairs = ours.iter().zip(theirs).zip(0..);
        let differs = pairs.filter(|(((tally, may), theirs), _)| !explains(theirs.without(*tally), may));
        Ok(differs.map(|(_, shelf)| shelf).collect())
    }

    pub fn ask_containers(&self, of: &[u32]) -> ReportAsk {
        ReportAsk::Containers { shelves: self.shelves, of: of.to_vec() }
    }

    /// The containers on these shelves that differ, with how many chunks the larger side has.
    pub fn containers(&self, asked: &[u32], part: &ReportPart) -> Result<Vec<(ContainerId, u32)>, Strange> {
        let ReportPart::Containers(theirs) = part else { return Err(Strange) };
        let is_asked = |id: &ContainerId| asked.contains(&self.mixer.shelf(*id, self.shelves));
        let theirs: BTreeMap<ContainerId, Tally> = theirs.iter().copied().collect();
        if !theirs.keys().all(is_asked) {
            return Err(Strange);
        }
        let all: BTreeSet<ContainerId> =
            self.containers.keys().filter(|id| is_asked(id)).chain(theirs.keys()).copied().collect();
        let mut differ = Vec::new();
        for id in all {
            let theirs = theirs.get(&id).copied().unwrap_or_default();
            let (ours, may) = self.containers.get(&id).map_or((Tally::default(), &[][..]), |it| (it.tally, &it.may));
            if !explains(theirs.without(ours), may) {
                differ.push((id, theirs.count.max(ours.count)));
            }
        }
        Ok(differ)
    }

    /// Of containers as [`Expected::containers`] says.
    pub fn ask_buckets(of: &[(ContainerId, u32)]) -> ReportAsk {
        ReportAsk::Buckets { of: of.iter().map(|(id, chunks)| (*id, buckets_for(*chunks))).collect() }
    }

    /// The question for the ids in the buckets that differ from the view, which has the ids of these containers.
    pub fn ask_ids(view: &View, mixer: Mixer, asked: &ReportAsk, part: &ReportPart) -> Result<ReportAsk, Strange> {
        let (ReportAsk::Buckets { of }, ReportPart::Buckets(theirs)) = (asked, part) else { return Err(Strange) };
        if theirs.len() != of.len() {
            return Err(Strange);
        }
        let mut ids = Vec::new();
        for ((container, buckets), theirs) in of.iter().zip(theirs) {
            if theirs.len() != *buckets as usize {
                return Err(Strange);
            }
            let mut ours = vec![Tally::default(); theirs.len()];
            for (chunk, _) in view.ids(*container) {
                let bucket = mixer.bucket(*container, chunk, *buckets);
                ours[bucket as usize].add(mixer.number(*container, chunk));
            }
            let differs = ours.iter().zip(theirs).zip(0..).filter(|((ours, theirs), _)| ours != theirs);
            let which: Vec<u32> = differs.map(|(_, bucket)| bucket).collect();
            if !which.is_empty() {
                ids.push((*container, *buckets, which));
            }
        }
        Ok(ReportAsk::Ids { of: ids })
    }

    /// What a file has and the server has not, and what the server has and nobody names: container and chunk of each.
    pub fn compare(view: &View, mixer: Mixer, asked: &ReportAsk, part: &ReportPart) -> Result<Compared, Strange> {
        let (ReportAsk::Ids { of }, ReportPart::Ids(theirs)) = (asked, part) else { return Err(Strange) };
        if theirs.len() != of.len() {
            return Err(Strange);
        }
        let mut compared = Compared::default();
        for ((container, buckets, which), theirs) in of.iter().zip(theirs) {
            let theirs: BTreeSet<ChunkId> = theirs.iter().copied().collect();
            for (chunk, _) in view.ids(*container) {
                let is_asked = which.contains(&mixer.bucket(*container, chunk, *buckets));
                if is_asked && !theirs.contains(&chunk) && !view.is_pending(*container, chunk) {
                    compared.lost.push((*container, chunk));
                }
            }
            for chunk in theirs {
                if view.named(*container, chunk).is_none() && !view.is_pending(*container, chunk) {
                    compared.extra.push((*container, chunk));
                }
            }
        }
        Ok(compared)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    pub lost: Vec<(ContainerId, ChunkId)>,
    pub extra: Vec<(ContainerId, ChunkId)>,
}

/// Is the difference made up of some of these? Of many it is not tried: finer questions tell.
fn explains<'a>(difference: Tally, may: impl IntoIterator<Item = &'a u64>) -> bool {
    if difference == Tally::default() {
        return true;
    }
    let may: Vec<u64> = may.into_iter().take(TRIED_MAX + 1).copied().collect();
    if may.len() > TRIED_MAX || difference.count as usize > may.len() {
        return false;
    }
    (1u32..1 << may.len()).filter(|some| some.count_ones() == difference.count).any(|some| {
        let chosen = may.iter().enumerate().filter(|(at, _)| some & (1 << at) != 0);
        chosen.fold(0u64, |sum, (_, number)| sum.wrapping_add(*number)) == difference.sum
    })
}
