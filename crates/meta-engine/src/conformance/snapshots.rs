//! Snapshots: one moment, whatever happens later, for a reader on a thread of its own.

use super::script::*;
use crate::{Early, Engine, EngineError, Key, Page, Row, Snapshot, Table};

type Rows = Vec<(Key, Row)>;

/// A snapshot, on a thread that may block; `None` of an engine that says that it has none.
async fn taken<E: Engine>(engine: &E, tables: &[Table]) -> Option<Box<dyn Snapshot>> {
    match engine.snapshot(tables).await {
        Ok(snapshot) => Some(snapshot),
        Err(EngineError::Unsupported(_)) => None,
        Err(error) => panic!("a snapshot was answered by {error:?}"),
    }
}

async fn on_its_thread<T: Send + 'static>(
    mut snapshot: Box<dyn Snapshot>,
    read: impl FnOnce(&mut dyn Snapshot) -> T + Send + 'static,
) -> (Box<dyn Snapshot>, T) {
    let work = move || {
        let found = read(&mut *snapshot);
        (snapshot, found)
    };
    tokio::task::spawn_blocking(work).await.expect("it reads")
}

/// Everything of a table, in pages of three, ticking between them.
fn whole(snapshot: &mut dyn Snapshot, table: Table) -> Rows {
    let mut all = Rows::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = snapshot.scan_table(table, after.as_ref(), 3).expect("it scans");
        assert!(page.rows.len() <= 3 && (!page.more || !page.rows.is_empty()), "{page:?}");
        all.extend(page.rows);
        snapshot.tick().expect("it ticks");
        if !page.more {
            return all;
        }
    }
}

fn shown(rows: &[(Key, Row)]) -> String {
    rows.iter().map(|(key, row)| format!("{}={} ", key.rest().escape_ascii(), row.escape_ascii())).collect()
}

/// It shows what was committed before, by every way of reading, and nothing of what comes later; also when its engine has gone.
pub async fn a_snapshot_is_of_one_moment<E: Engine>(engine: E) {
    let names: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
    commit(&engine, names.iter().map(|name| put(1, name, "then")).collect()).await;
    commit(&engine, vec![put(2, "b", "then"), Step::Put(Key::new(Table::Chunks, 1, b"c"), row("then"))]).await;
    let Some(snapshot) = taken(&engine, &[Table::Inodes, Table::Chunks]).await else { return };
    let mut later =
        vec![put(1, "n3", "now"), put(1, "n33", "now"), delete(1, "n5"), delete(2, "b"), put(3, "z", "now")];
    later.push(Step::Delete(Key::new(Table::Chunks, 1, b"c")));
    commit(&engine, later).await;
    let then: Rows = names.iter().map(|name| (key(1, name), row("then"))).chain([(key(2, "b"), row("then"))]).collect();
    let expected = then.clone();
    let (snapshot, ()) = on_its_thread(snapshot, move |snapshot| {
        assert_eq!(whole(snapshot, Table::Inodes), expected);
        assert_eq!(snapshot.get(&key(1, "n3")).expect("it gets"), Some(row("then")));
        assert_eq!(snapshot.get(&key(1, "n33")).expect("it gets"), None);
        assert_eq!(snapshot.get(&Key::new(Table::Chunks, 1, b"c")).expect("it gets"), Some(row("then")));
        let page = snapshot.scan(&key(1, "n"), Some(&key(1, "n2")), 3).expect("it scans");
        assert_eq!((shown(&page.rows).as_str(), page.more), ("n3=then n4=then n5=then ", true));
        assert_eq!(snapshot.scan(&key(3, ""), None, 9).expect("it scans"), Page::default());
    })
    .await;
    let newer = taken(&engine, &[Table::Inodes]).await.expect("there was one before");
    let (_, now) = on_its_thread(newer, |newer| whole(newer, Table::Inodes)).await;
    assert_eq!(shown(&now), "n0=then n1=then n2=then n3=now n33=now n4=then n6=then n7=then n8=then n9=then z=now ");
    drop(engine);
    let (_, again) = on_its_thread(snapshot, |snapshot| whole(snapshot, Table::Inodes)).await;
    assert_eq!(again, then, "it needs no engine");
}

/// What was answered, early too, is in a snapshot that is asked for later, and durable when there is one.
pub async fn a_snapshot_shows_what_was_answered_before<E: Engine>(engine: &E) {
    for n in 0..5 {
        let early = Early::of(7);
        let text = n.to_string();
        let (_, order) = engine.transact_early(1, early, Script(vec![put(1, "a", &text)])).await.expect("it commits");
        let Some(snapshot) = taken(engine, &[Table::Inodes]).await else { return };
        if let crate::Order::Early(number) = order {
            assert!(engine.durable() >= number, "nobody is shown what a crash takes back");
        }
        let (_, found) = on_its_thread(snapshot, |snapshot| snapshot.get(&key(1, "a")).expect("it gets")).await;
        assert_eq!(found, Some(row(&text)));
    }
}

pub async fn a_snapshot_has_the_tables_it_was_asked_for<E: Engine>(engine: &E) {
    commit(engine, vec![put(1, "a", "x")]).await;
    let Some(snapshot) = taken(engine, &[Table::Chunks]).await else { return };
    let (_, ()) = on_its_thread(snapshot, |snapshot| {
        assert_eq!(whole(snapshot, Table::Chunks), []);
        assert!(snapshot.get(&key(1, "a")).is_err() && snapshot.scan(&key(1, ""), None, 9).is_err());
        assert!(snapshot.scan_table(Table::Inodes, None, 9).is_err());
    })
    .await;
}
