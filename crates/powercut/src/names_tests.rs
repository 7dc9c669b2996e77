use super::*;

/// Directories have numbers from 100.
fn is_dir(node: NodeId) -> bool {
    node == ROOT || node >= 100
}

#[derive(Default)]
struct Tree {
    names: Names,
    seq: u64,
}

impl Tree {
    fn change(&mut self, edits: Vec<Edit>) -> u64 {
        self.seq += 1;
        self.names.change(NewChange { seq: self.seq, edits, is_dir: &is_dir });
        self.seq
    }

    fn edit(&self, dir: NodeId, name: &str, is: Option<NodeId>) -> Edit {
        Edit { dir, name: name.into(), was: self.names.get(dir, name.as_bytes()), is }
    }

    fn set(&mut self, dir: NodeId, name: &str, is: Option<NodeId>) -> u64 {
        self.change(vec![self.edit(dir, name, is)])
    }

    fn rename(&mut self, from: (NodeId, &str), to: (NodeId, &str)) -> u64 {
        let node = self.names.get(from.0, from.1.as_bytes());
        self.change(vec![self.edit(from.0, from.1, None), self.edit(to.0, to.1, node)])
    }

    fn cut(&mut self, order: Order, seed: u64) -> Vec<String> {
        self.names.cut(&mut Fate::new(order, seed, self.names.committed, self.seq));
        let name = |((dir, name), node): (&(NodeId, Vec<u8>), &NodeId)| {
            format!("{dir}/{}={node}", String::from_utf8_lossy(name))
        };
        self.names.now.iter().map(name).collect()
    }
}

fn outcomes(order: Order, prepare: impl Fn(&mut Tree)) -> BTreeSet<Vec<String>> {
    let outcome = |seed| {
        let mut tree = Tree::default();
        prepare(&mut tree);
        tree.cut(order, seed)
    };
    (0..300).map(outcome).collect()
}

fn texts(list: &[&[&str]]) -> BTreeSet<Vec<String>> {
    list.iter().map(|names| names.iter().map(|name| (*name).to_owned()).collect()).collect()
}

#[test]
fn a_rename_is_kept_or_lost_whole() {
    for order in [Order::Journal, Order::Posix] {
        let seen = outcomes(order, |tree| {
            tree.set(ROOT, "old", Some(5));
            tree.names.sync_dir(ROOT);
            tree.names.committed = tree.seq;
            tree.rename((ROOT, "old"), (ROOT, "new"));
        });
        assert_eq!(seen, texts(&[&["1/old=5"], &["1/new=5"]]), "{order:?}");
    }
}

#[test]
fn a_journal_keeps_the_oldest_and_posix_any() {
    let two = |tree: &mut Tree| {
        tree.set(ROOT, "a", Some(5));
        tree.set(ROOT, "b", Some(6));
    };
    assert_eq!(outcomes(Order::Journal, two), texts(&[&[], &["1/a=5"], &["1/a=5", "1/b=6"]]));
    assert_eq!(outcomes(Order::Posix, two), texts(&[&[], &["1/a=5"], &["1/b=6"], &["1/a=5", "1/b=6"]]));
}

#[test]
fn a_synced_name_goes_with_its_unsynced_directory() {
    let seen = outcomes(Order::Posix, |tree| {
        tree.set(ROOT, "d", Some(100));
        tree.set(100, "f", Some(5));
        tree.names.sync_dir(100);
    });
    assert_eq!(seen, texts(&[&[], &["1/d=100", "100/f=5"]]));
}

#[test]
fn moves_lose_nothing_and_double_nothing() {
    let seen = outcomes(Order::Posix, |tree| {
        tree.set(ROOT, "f", Some(5));
        tree.names.sync_dir(ROOT);
        tree.set(ROOT, "p", Some(100));
        tree.set(100, "d", Some(101));
        tree.rename((ROOT, "f"), (101, "f"));
        tree.rename((101, "f"), (101, "g"));
    });
    for names in &seen {
        assert_eq!(names.iter().filter(|name| name.ends_with("=5")).count(), 1, "{names:?}");
    }
    assert!(seen.len() > 3);
}

#[test]
fn a_removed_directory_was_empty() {
    let seen = outcomes(Order::Posix, |tree| {
        tree.set(ROOT, "d", Some(100));
        tree.set(100, "f", Some(5));
        tree.names.sync_dir(ROOT);
        tree.names.sync_dir(100);
        tree.rename((100, "f"), (ROOT, "f"));
        tree.set(ROOT, "d", None);
    });
    assert_eq!(seen, texts(&[&["1/d=100", "100/f=5"], &["1/d=100", "1/f=5"], &["1/f=5"]]));
}

#[test]
fn what_waits_too_long_is_written() {
    let mut tree = Tree::default();
    for n in 0..PENDING_MAX as u64 + 10 {
        tree.set(ROOT, &format!("{n}"), Some(n + 2));
    }
    assert_eq!((tree.names.pending(), tree.names.stable.len()), (PENDING_MAX, 10));
}
