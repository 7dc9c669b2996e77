//! Walks of clients that keep what they learn ([`braid_api::meta::Walk`]).

use crate::call::Call;
use crate::leases::Ask;
use crate::server::MetaServer;
use braid_api::Result;
use braid_api::meta::{Resolve, Resolved, Walk, Walked};
use braid_lease::Key;
use braid_types::{FileKind, SessionId};

impl MetaServer {
    pub(crate) async fn walk_granting(&self, call: &mut Call, session: SessionId, m: Walk) -> Result<Walked> {
        let resolve = Resolve { from: m.from, path: m.path };
        let mut ask = self.leases.ask(session);
        let mut found = self.walk(call, &resolve).await?;
        if self.refresh_files(session, found.attrs.iter()).await? {
            ask = self.leases.ask(session);
            found = self.walk(call, &resolve).await?;
        }
        Ok(claim_way(ask, &resolve, found, m.attr))
    }
}

/// Nothing is granted of what is shown of snapshots: which there are nobody is told when that changes.
fn claim_way(ask: Option<Ask<'_>>, resolve: &Resolve, found: Resolved, with_attr: bool) -> Walked {
    let mut walked = Walked { names: vec![false; found.attrs.len()], found, attr: false, absence: false };
    let Some(ask) = ask else { return walked };
    let attrs = &walked.found.attrs;
    let parents = || std::iter::once(resolve.from).chain(attrs.iter().map(|attr| attr.id));
    let lasting = parents().take_while(|id| !id.is_in_snapshot()).count().saturating_sub(1);
    let mut keys = Vec::with_capacity(lasting + 1);
    keys.extend(parents().zip(&resolve.path).take(lasting).map(|(dir, name)| Key::Name(dir, name.clone())));
    let end = parents().last().filter(|end| lasting == attrs.len() && !end.is_in_snapshot());
    let is_dir = attrs.last().is_none_or(|attr| attr.kind == FileKind::Directory);
    match walked.found.rest {
        0 if with_attr && !attrs.is_empty() => keys.extend(end.map(Key::Attr)),
        1 if is_dir => keys.extend(end.map(Key::Dir)),
        _ => {}
    }
    // In the order of the keys, and each name is there once: what stands for a directory is not below it.
    let mut granted = ask.claim(keys).into_iter().peekable();
    for (at, (dir, name)) in parents().zip(&resolve.path).take(lasting).enumerate() {
        let is_it = |key: &Key| matches!(key, Key::Name(of, granted) if *of == dir && granted == name);
        walked.names[at] = granted.next_if(is_it).is_some();
    }
    match granted.next() {
        Some(Key::Attr(_)) => walked.attr = true,
        Some(Key::Dir(_)) => walked.absence = true,
        _ => {}
    }
    walked
}
