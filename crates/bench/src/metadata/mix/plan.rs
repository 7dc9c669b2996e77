//! What is done, and in which order: the same from the same seed, whatever file system it is done on.
//!
//! Knows only `std`: the driver of another file system includes this file (`scripts/hdfs-mix`), so that both do the same.

use std::collections::VecDeque;

/// SplitMix64 (Steele, Lea, Flood 2014). Our own seven lines, because no version of a crate may change the sequence.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64, stream: u64) -> Draw {
        let mut draw = Draw(seed ^ stream.wrapping_mul(0xd605_bbb5_8c8a_bbfd));
        draw.word();
        draw
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; the error of the remainder is 1 in 2^64 / n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n.max(1)
    }

    /// From 0 until 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Ranks from 0, of which rank `r` comes in proportion to `1 / (r + 1) ^ exponent`: exactly, by a table of sums.
#[derive(Clone, Debug)]
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// File accesses of seven MapReduce clusters at Facebook and Cloudera's customers follow this exponent (Chen, Alspaugh, Katz,
    /// VLDB 2012, section 4.2).
    pub const EXPONENT: f64 = 5.0 / 6.0;

    pub fn new(ranks: u64, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=ranks.max(1)).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf { sums: sums.collect() }
    }

    pub fn rank(&self, draw: &mut Draw) -> u64 {
        let wanted = draw.unit() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum <= wanted);
        rank.min(self.sums.len() - 1) as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Opens a file and learns where its blocks are; no bytes.
    Read,
    Stat,
    /// Of a directory.
    List,
    AddBlock,
    Move,
    Create,
    Delete,
    SetOwner,
    SetReplication,
    SetPermission,
    Mkdirs,
    /// Bytes, files and directories below a directory.
    Summary,
    /// Makes, writes and closes a file of [`SMALL_BYTES`]; not in the mix.
    PutSmall,
    /// Opens, reads and closes one; not in the mix.
    GetSmall,
}

pub const SMALL_BYTES: usize = 4096;

/// Files of [`Op::GetSmall`] for each client.
const SMALL_FILES: usize = 250;

impl Op {
    /// In the order in which they are done alone: what only reads first.
    pub const ALL: [Op; 14] = [
        Op::Read,
        Op::Stat,
        Op::List,
        Op::Summary,
        Op::AddBlock,
        Op::Move,
        Op::Create,
        Op::Delete,
        Op::SetOwner,
        Op::SetReplication,
        Op::SetPermission,
        Op::Mkdirs,
        Op::PutSmall,
        Op::GetSmall,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Stat => "stat",
            Op::List => "list",
            Op::AddBlock => "add-block",
            Op::Move => "move",
            Op::Create => "create",
            Op::Delete => "delete",
            Op::SetOwner => "set-owner",
            Op::SetReplication => "set-replication",
            Op::SetPermission => "set-permission",
            Op::Mkdirs => "mkdirs",
            Op::Summary => "content-summary",
            Op::PutSmall => "put-4k",
            Op::GetSmall => "get-4k",
        }
    }

    pub fn named(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }

    pub fn is_change(self) -> bool {
        !matches!(self, Op::Read | Op::Stat | Op::List | Op::Summary | Op::GetSmall)
    }
}

/// Operations and their shares, in hundredths of a percent.
pub type Mix = &'static [(Op, u64)];

/// Spotify's cluster (Niazi et al., FAST 2017, table 1). The published shares add up to 100.00 %: nothing is left over.
pub const SPOTIFY: Mix = &[
    (Op::Read, 6873),
    (Op::Stat, 1700),
    (Op::List, 900),
    (Op::AddBlock, 150),
    (Op::Move, 130),
    (Op::Create, 120),
    (Op::Delete, 75),
    (Op::SetOwner, 32),
    (Op::SetReplication, 14),
    (Op::SetPermission, 3),
    (Op::Mkdirs, 2),
    (Op::Summary, 1),
];

/// What the namespace looks like before a turn and after it: directories in a tree, as many files in each, all below one.
#[derive(Clone, Debug)]
pub struct Tree {
    pub root: String,
    pub files: u64,
    files_a_dir: u64,
    fanout: u64,
}

impl Tree {
    pub const FILES_A_DIR: u64 = 16;
    /// Components of the longest path: with the fewest directories in a directory that allow for it.
    pub const DEPTH_MAX: u32 = 7;

    pub fn new(root: &str, files: u64, files_a_dir: u64) -> Tree {
        let (files, files_a_dir) = (files.max(1), files_a_dir.max(1));
        let dirs = files.div_ceil(files_a_dir);
        // The topmost directory and the file are two of the components.
        let fits =
            |fanout: u64| (0..Tree::DEPTH_MAX - 1).map(|level| fanout.saturating_pow(level)).sum::<u64>() >= dirs;
        let fanout = (2..).find(|fanout| fits(*fanout)).unwrap_or(2);
        Tree { root: root.to_owned(), files, files_a_dir, fanout }
    }

    pub fn dirs(&self) -> u64 {
        self.files.div_ceil(self.files_a_dir)
    }

    /// Directory 0 is the topmost; every other one comes after the one it is in.
    pub fn dir(&self, dir: u64) -> String {
        match dir {
            0 => format!("/{}", self.root),
            _ => format!("{}/directory-{dir:06}", self.dir((dir - 1) / self.fanout)),
        }
    }

    pub fn dir_of(&self, file: u64) -> u64 {
        file % self.dirs()
    }

    pub fn file(&self, file: u64) -> String {
        format!("{}/file-{file:08}", self.dir(self.dir_of(file)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub op: Op,
    pub path: String,
    /// Of [`Op::Move`]: where to.
    pub to: String,
}

impl Step {
    fn of(op: Op, path: String) -> Step {
        Step { op, path, to: String::new() }
    }
}

/// What one client does in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Before the time begins: files that will be deleted or moved ([`Op::Create`]), that are to be open ([`Op::AddBlock`]), and that
    /// have bytes ([`Op::PutSmall`]).
    pub before: Vec<Step>,
    pub steps: Vec<Step>,
    /// After it: files and directories ([`Op::Mkdirs`]) the turn leaves, to be deleted, so that the next finds what this one found.
    pub left: Vec<Step>,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub tree: Tree,
    zipf: Zipf,
    /// Of each rank, its file.
    ranked: Vec<u64>,
    seed: u64,
}

impl Plan {
    pub fn new(tree: Tree, exponent: f64, seed: u64) -> Plan {
        let mut draw = Draw::new(seed, 0);
        let mut ranked: Vec<u64> = (0..tree.files).collect();
        // Fisher and Yates: what is popular lies anywhere.
        for at in (1..ranked.len()).rev() {
            ranked.swap(at, draw.below(at as u64 + 1) as usize);
        }
        Plan { zipf: Zipf::new(tree.files, exponent), tree, ranked, seed }
    }

    fn popular(&self, draw: &mut Draw) -> u64 {
        self.ranked[self.zipf.rank(draw) as usize]
    }

    /// Turn `turn` of `client`, one of `clients` that share `operations`.
    ///
    /// No client touches what another removes or renames, so that nothing depends on who is first: what is deleted and moved was made
    /// by the same client, in this turn or before it. The directories are everybody's.
    pub fn script(&self, mix: &[(Op, u64)], turn: u64, client: u64, clients: u64, operations: u64) -> Script {
        let mut draw = Draw::new(self.seed, (turn << 20) + client + 1);
        let all: u64 = mix.iter().map(|(_, share)| share).sum();
        let (mut script, mut own) = (Script::default(), VecDeque::new());
        let (mut dirs, mut opened, mut small, mut fresh) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let count = operations / clients + u64::from(client < operations % clients);
        for _ in 0..count {
            let mut at = draw.below(all);
            let found = mix.iter().find(|(_, share)| {
                let here = at < *share;
                at = at.saturating_sub(*share);
                here
            });
            let Some((op, _)) = found else { continue };
            let file = self.popular(&mut draw);
            let dir = self.tree.dir(self.tree.dir_of(file));
            let mut new = |kind: &str| {
                fresh += 1;
                format!("{dir}/{kind}-{turn:04}-{client:04}-{fresh:08}")
            };
            let step = match *op {
                op @ (Op::Read | Op::Stat | Op::SetOwner | Op::SetReplication | Op::SetPermission) => {
                    Step::of(op, self.tree.file(file))
                }
                op @ (Op::List | Op::Summary) => Step::of(op, dir),
                Op::AddBlock => {
                    let path = new("open");
                    script.before.push(Step::of(Op::AddBlock, path.clone()));
                    opened.push(path.clone());
                    Step::of(Op::AddBlock, path)
                }
                op @ (Op::Create | Op::PutSmall) => {
                    let path = new("new");
                    own.push_back(path.clone());
                    Step::of(op, path)
                }
                op @ (Op::Delete | Op::Move) => {
                    let path = own.pop_front().unwrap_or_else(|| {
                        let path = new("old");
                        script.before.push(Step::of(Op::Create, path.clone()));
                        path
                    });
                    let mut step = Step::of(op, path);
                    if op == Op::Move {
                        step.to = new("moved");
                        own.push_back(step.to.clone());
                    }
                    step
                }
                Op::Mkdirs => {
                    let path = new("made");
                    dirs.push(path.clone());
                    Step::of(Op::Mkdirs, path)
                }
                Op::GetSmall => {
                    if small.len() < SMALL_FILES.min(count as usize) {
                        let path = new("small");
                        script.before.push(Step::of(Op::PutSmall, path.clone()));
                        small.push(path);
                    }
                    Step::of(Op::GetSmall, small[draw.below(small.len() as u64) as usize].clone())
                }
            };
            script.steps.push(step);
        }
        let files = own.into_iter().chain(opened).chain(small).map(|path| Step::of(Op::Delete, path));
        script.left = files.chain(dirs.into_iter().map(|path| Step::of(Op::Mkdirs, path))).collect();
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_published_shares_are_all() {
        assert_eq!(SPOTIFY.iter().map(|(_, share)| share).sum::<u64>(), 10_000);
    }

    #[test]
    fn ranks_come_as_often_as_zipf_says() {
        for exponent in [0.0, Zipf::EXPONENT, 1.2] {
            let (zipf, mut draw) = (Zipf::new(50, exponent), Draw::new(7, 1));
            let (mut counts, draws) = ([0u32; 50], 1_000_000);
            for _ in 0..draws {
                counts[zipf.rank(&mut draw) as usize] += 1;
            }
            let all: f64 = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for (i, count) in counts.iter().enumerate() {
                let expected = f64::from(draws) * ((i + 1) as f64).powf(-exponent) / all;
                // Six standard deviations.
                let off = (f64::from(*count) - expected).abs();
                assert!(off < 6.0 * expected.sqrt(), "rank {i} at {exponent}: {count}, not {expected}");
            }
        }
    }

    #[test]
    fn the_tree_is_as_deep_as_it_may_be_and_no_deeper() {
        for files in [1, 16, 17, 10_000, 100_000] {
            let tree = Tree::new("mix", files, Tree::FILES_A_DIR);
            let depth = |path: &str| path.matches('/').count() as u32;
            assert!((0..files).all(|file| depth(&tree.file(file)) <= Tree::DEPTH_MAX), "{files} files");
            let paths: BTreeSet<String> = (0..files).map(|file| tree.file(file)).collect();
            assert_eq!(paths.len() as u64, files, "every file has its path");
        }
        assert_eq!(Tree::new("mix", 10_000, 16).dirs(), 625);
    }

    fn plan() -> Plan {
        Plan::new(Tree::new("mix", 1000, 16), Zipf::EXPONENT, 42)
    }

    #[test]
    fn the_same_seed_is_the_same_sequence_and_another_is_another() {
        let script = |seed| Plan::new(Tree::new("mix", 1000, 16), 1.0, seed).script(SPOTIFY, 1, 0, 8, 8000);
        assert_eq!(script(1), script(1));
        assert_ne!(script(1).steps, script(2).steps);
        assert_ne!(plan().script(SPOTIFY, 1, 0, 8, 8000).steps, plan().script(SPOTIFY, 2, 0, 8, 8000).steps);
        assert_ne!(plan().script(SPOTIFY, 1, 0, 8, 8000).steps, plan().script(SPOTIFY, 1, 1, 8, 8000).steps);
    }

    #[test]
    fn operations_come_as_often_as_their_shares() {
        let steps = plan().script(SPOTIFY, 1, 0, 1, 400_000).steps;
        assert_eq!(steps.len(), 400_000);
        for (op, share) in SPOTIFY {
            let expected = 40.0 * *share as f64;
            let count = steps.iter().filter(|step| step.op == *op).count() as f64;
            assert!((count - expected).abs() < 6.0 * expected.sqrt(), "{}: {count}, not {expected}", op.name());
        }
    }

    /// Nothing fails for want of a file or because it is there, and at the end the namespace is as it was.
    #[test]
    fn a_turn_leaves_what_it_says_and_misses_nothing() {
        let mut mixes: Vec<Vec<(Op, u64)>> = Op::ALL.iter().map(|op| vec![(*op, 1)]).collect();
        mixes.push(SPOTIFY.to_vec());
        let plan = plan();
        let standing: BTreeSet<String> = (0..plan.tree.files).map(|file| plan.tree.file(file)).collect();
        for mix in mixes {
            let mut there = standing.clone();
            for client in 0..3 {
                let script = plan.script(&mix, 5, client, 3, 3001);
                for step in script.before.iter().chain(&script.steps) {
                    let what = format!("{step:?} in {mix:?}");
                    match step.op {
                        Op::Create | Op::Mkdirs | Op::PutSmall => assert!(there.insert(step.path.clone()), "{what}"),
                        Op::AddBlock => _ = there.insert(step.path.clone()),
                        Op::Delete => assert!(there.remove(&step.path), "{what}"),
                        Op::Move => {
                            assert!(there.remove(&step.path) && there.insert(step.to.clone()), "{what}");
                        }
                        Op::List | Op::Summary => {}
                        _ => assert!(there.contains(&step.path), "{what}"),
                    }
                }
                for step in script.left {
                    assert!(there.remove(&step.path), "{step:?} in {mix:?}");
                }
            }
            assert_eq!(there, standing, "{mix:?}");
        }
    }
}
