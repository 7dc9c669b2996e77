//! Scans: prefix, start, limit, `more`, and the transaction's own writes among stored rows.

use super::script::*;
use crate::{Engine, Key, Page, Row, Table};

pub async fn a_scan_keeps_to_its_prefix<E: Engine>(engine: &E) {
    let mut fill: Vec<_> = ["", "a", "ab", "abc", "b"].into_iter().map(|rest| put(5, rest, rest)).collect();
    fill.extend([put(4, "ab", "left"), put(6, "ab", "right")]);
    // 0xff is where an upper bound made by adding one to the last byte goes wrong.
    for rest in [&[0xff][..], &[0xff, 0xff], &[0xff, 0xff, 1], &[0]] {
        fill.push(Step::Put(Key::new(Table::Inodes, 5, rest), rest.to_vec()));
    }
    fill.push(Step::Put(Key::new(Table::InodeIds, 5, b"ab"), row("other table")));
    fill.push(Step::Put(Key::new(Table::Inodes, u64::MAX, b"z"), row("last partition")));
    commit(engine, fill).await;

    let rests = |page: &Page| page.rows.iter().map(|(key, _)| key.rest().to_vec()).collect::<Vec<_>>();
    let seen = read(engine, vec![scan(5, "a", None, 10), scan(5, "ab", None, 10), scan(5, "x", None, 10)]).await;
    let pages: Vec<_> = seen.into_iter().map(Seen::page).collect();
    assert_eq!(rests(&pages[0]), [&b"a"[..], b"ab", b"abc"]);
    assert_eq!(rests(&pages[1]), [&b"ab"[..], b"abc"]);
    assert_eq!(pages[2], Page::default());

    let all = read(engine, vec![scan(5, "", None, 100)]).await.remove(0).page();
    let expected = [&b""[..], &[0], b"a", b"ab", b"abc", b"b", &[0xff], &[0xff, 0xff], &[0xff, 0xff, 1]];
    assert_eq!(rests(&all), expected, "a whole partition, in the order of bytes");
    let high = Step::Scan { prefix: Key::new(Table::Inodes, 5, &[0xff, 0xff]), after: None, limit: 9 };
    assert_eq!(rests(&read(engine, vec![high]).await.remove(0).page()), expected[7..]);
    let last = read(engine, vec![scan(u64::MAX, "", None, 9)]).await.remove(0).page();
    assert_eq!(rests(&last), [b"z"]);
}

pub async fn pages_follow_each_other<E: Engine>(engine: &E) {
    let names: Vec<_> = (0..25).map(|n| format!("n{n:02}")).collect();
    commit(engine, names.iter().map(|name| put(1, name, name)).collect()).await;
    commit(engine, vec![put(1, "m", "before"), put(1, "o", "behind")]).await;
    for limit in [1, 7, 24, 25, 26] {
        let mut found: Vec<(Key, Row)> = Vec::new();
        loop {
            let after = found.last().map(|(key, _)| key.clone());
            let page = read(engine, vec![scan(1, "n", after, limit)]).await.remove(0).page();
            assert!(page.rows.len() <= limit, "{} rows at limit {limit}", page.rows.len());
            assert!(!page.more || !page.rows.is_empty(), "a page promises more and has nothing");
            found.extend(page.rows);
            if !page.more {
                break;
            }
        }
        let expected: Vec<_> = names.iter().map(|name| (key(1, name), row(name))).collect();
        assert_eq!(found, expected, "in pages of {limit}");
    }
    // `after` need not exist, may lie before the prefix and behind it.
    let starts = vec![
        scan(1, "n", Some(key(1, "n03x")), 1),
        scan(1, "n", Some(key(1, "a")), 1),
        scan(1, "n", Some(key(1, "z")), 1),
    ];
    let first: Vec<_> =
        read(engine, starts).await.into_iter().map(|seen| seen.page().rows.first().map(|row| row.0.clone())).collect();
    assert_eq!(first, [Some(key(1, "n04")), Some(key(1, "n00")), None]);
}

pub async fn scans_merge_own_writes<E: Engine>(engine: &E) {
    commit(engine, ["b", "d", "f", "h"].into_iter().map(|name| put(1, name, "old")).collect()).await;
    let mut steps = vec![
        put(1, "a", "new"),
        put(1, "d", "new"),
        Step::Delete(key(1, "f")),
        insert(1, "g", "new"),
        Step::Delete(key(1, "i")),
        put(2, "c", "elsewhere"),
    ];
    steps.extend([scan(1, "", None, 10), scan(1, "", None, 2), scan(1, "", Some(key(1, "b")), 2)]);
    steps.push(scan(1, "", Some(key(1, "d")), 2));
    steps.push(Step::ScanTable { table: Table::Inodes, after: Some(key(1, "g")), limit: 10 });
    let pages: Vec<_> = commit(engine, steps).await.into_iter().map(Seen::page).collect();
    let shown = |page: &Page| {
        let one = |(key, row): &(Key, Row)| format!("{}={} ", key.rest().escape_ascii(), row.escape_ascii());
        page.rows.iter().map(one).collect::<String>()
    };
    assert_eq!(shown(&pages[0]), "a=new b=old d=new g=new h=old ");
    assert_eq!((shown(&pages[1]).as_str(), pages[1].more), ("a=new b=old ", true));
    assert_eq!((shown(&pages[2]).as_str(), pages[2].more), ("d=new g=new ", true));
    assert_eq!(shown(&pages[3]), "g=new h=old ");
    assert_eq!(shown(&pages[4]), "h=old c=elsewhere ");
}

pub async fn a_table_is_scanned_whole<E: Engine>(engine: &E) {
    let mut keys = Vec::new();
    for partition in [0, 1, 255, 256, u64::MAX] {
        keys.extend((0..60).map(|n| key(partition, &format!("{n:02}"))));
    }
    keys.sort();
    commit(engine, keys.iter().map(|key| Step::Put(key.clone(), row("x"))).collect()).await;
    commit(engine, vec![Step::Put(Key::new(Table::Chunks, 1, b""), row("other table"))]).await;
    let found: Vec<_> = whole_table(engine, Table::Inodes).await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(found, keys);
    assert_eq!(whole_table(engine, Table::Reclaim).await, []);
}
