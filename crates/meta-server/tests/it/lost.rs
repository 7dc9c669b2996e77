//! A commit in a database of whose outcome the server could learn nothing: who asks again, under the same request id, gets what came of it,
//! and it takes effect once.
#![allow(clippy::unwrap_used)]

use crate::common::rows::mariadb;
use crate::common::*;
use braid_api::Code;
use braid_api::meta::*;
use braid_meta_engine::AnyEngine;
use braid_meta_engine_sql::{Address, SqlEngine, SqlOptions};
use braid_types::*;
use proxy::{Cut, Proxy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

#[path = "../../../meta-engine-sql/tests/it/proxy.rs"]
#[allow(dead_code)]
mod proxy;

const ROOT: InodeId = InodeId::ROOT;

/// What became of the commit of which nobody heard.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Came,
    /// The database heard nothing more either: it gives the rows of such a transaction free after ten seconds.
    Lost,
}

struct Lossy {
    world: World,
    proxy: Proxy,
}

impl Lossy {
    async fn new() -> Lossy {
        let proxy = Proxy::start(&mariadb::shared().socket());
        let addresses = vec![Address::Tcp { host: "127.0.0.1".into(), port: proxy.port }];
        let options = mariadb::shared().options(&mariadb::database());
        let options = SqlOptions { addresses, give_up_after: Duration::from_millis(300), ..options };
        let engine = AnyEngine::new(Arc::new(SqlEngine::open(options).await.unwrap()));
        let world = World::over(engine, Default::default(), Peers::default(), without_housekeeping(), 1).await;
        // The numbers of inodes are taken from the database for many, with a commit of their own.
        world.call(create(ROOT, "first")).await.unwrap();
        world.call(Unlink { parent: ROOT.into(), name: name("first"), open_here: false }).await.unwrap();
        Lossy { world, proxy }
    }

    /// Asks for the change twice under one request id, the first time in vain.
    async fn twice<M>(&self, fate: Fate, message: M) -> M::Answer
    where
        M: braid_api::Carries<MetaRequest, MetaAnswer> + Clone + Send,
        M::Answer: Send + std::fmt::Debug,
    {
        let cx = self.world.cx();
        // What the server does beside requests may be cut instead: then this was not sent.
        let mut attempts = 0;
        loop {
            self.proxy.cut(Cut::Gone);
            let unheard = match self.world.server.call(cx, message.clone()).await {
                Err(error) => error,
                Ok(answer) => panic!("{answer:?}: another commit was cut"),
            };
            if unheard.code == Code::MaybeCommitted {
                break;
            }
            assert!(attempts < 5, "{unheard}");
            attempts += 1;
            self.proxy.deliver();
            self.proxy.open();
        }
        // First: who can connect has what is still on its way refused.
        if let Fate::Came = fate {
            assert_eq!(self.proxy.deliver(), 1);
        }
        self.proxy.open();
        // As a client does, whose operations have 30 s.
        let asked = async {
            loop {
                match self.world.server.call(cx, message.clone()).await {
                    Err(error) if error.code == Code::Busy => tokio::time::sleep(Duration::from_millis(100)).await,
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), asked).await.expect("its rows are free again").unwrap()
    }

    /// The names in the root, and the inodes that they stand for.
    async fn names(&self) -> BTreeSet<(String, InodeId)> {
        let page = ReadDir { inode: ROOT, after: None, limit: 100, plus: false, knows: Vec::new() };
        let page = self.world.call(page).await.unwrap();
        let named =
            page.entries.into_iter().map(|(name, id, ..)| (String::from_utf8_lossy(name.as_bytes()).into_owned(), id));
        named.collect()
    }
}

/// Makes, links, renames and removes a file; each of them would fail if it were made again.
async fn each_once(fate: Fate, lossy: &Lossy, is_lost: impl Fn(&str) -> bool) {
    let of = |text: &str, id| (text.to_owned(), id);
    macro_rules! change {
        ($what:literal, $message:expr) => {
            match is_lost($what) {
                true => lossy.twice(fate, $message).await,
                false => lossy.world.call($message).await.unwrap(),
            }
        };
    }
    let a = change!("create", create(ROOT, "a")).attr.id;
    assert_eq!(lossy.names().await, BTreeSet::from([of("a", a)]), "{fate:?}");
    let linked = change!("link", Link { inode: a.into(), parent: ROOT.into(), name: name("b") });
    assert_eq!(linked.attr.nlink, 2, "{fate:?}");
    let (from_name, to_name, mode) = (name("a"), name("c"), RenameKind::NoReplace);
    change!("rename", Rename { from: ROOT.into(), from_name, to: ROOT.into(), to_name, mode, open_here: false });
    assert_eq!(lossy.names().await, BTreeSet::from([of("b", a), of("c", a)]), "{fate:?}");
    for (text, nlink) in [("b", 1), ("c", 0)] {
        let removed = change!("unlink", Unlink { parent: ROOT.into(), name: name(text), open_here: false });
        assert_eq!(removed.attr.nlink, nlink, "{fate:?}");
    }
    assert_eq!(lossy.names().await, BTreeSet::new(), "{fate:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_and_not_heard_of_is_not_done_twice() {
    let lossy = Lossy::new().await;
    each_once(Fate::Came, &lossy, |_| true).await;
    assert!(lossy.proxy.cuts() >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_arrived_is_done_when_the_database_has_given_it_up() {
    let one = async |what: &str| each_once(Fate::Lost, &Lossy::new().await, |change| change == what).await;
    tokio::join!(one("create"), one("link"), one("rename"));
}
