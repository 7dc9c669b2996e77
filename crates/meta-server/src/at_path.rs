//! Requests by path: the walk, and the request about what it found ([`braid_api::meta::AtPath`]).

use crate::call::Call;
use crate::server::MetaServer;
use braid_api::meta::{
    AtPath, CreateFile, FileLease, FileWant, InodeRef, MetaAnswer, PutFile, Reached, Resolve, Then, ThenAnswer,
};
use braid_api::{Code, Context, Error, Result, Retry};
use braid_meta_namespace::ops::lookup::Step;
use braid_types::{InodeId, Name};
use std::future::Future;
use std::pin::Pin;

/// What a request that has run before is asked about when its path leads nowhere any more: nothing has this number.
const NOTHING: InodeId = InodeId(0);

impl MetaServer {
    // Boxed because the request inside is dispatched as any other, and none inside has another: two levels.
    pub(crate) fn at_path<'a>(
        &'a self,
        call: &'a mut Call,
        cx: Context,
        m: AtPath,
    ) -> Pin<Box<dyn Future<Output = Result<Reached>> + Send + 'a>> {
        Box::pin(async move {
            let AtPath { from, paths, then } = m;
            if paths.len() != then.paths() {
                let cause = format_args!("{} paths, and it has {}", paths.len(), then.paths());
                return Err(Error::new(Code::Invalid, then.name(), cause));
            }
            if let Some(answer) = self.at_known_path(call, cx, from, &paths, &then).await? {
                return Ok(answer);
            }
            let is_change = then.is_mutation();
            if is_change {
                call.early = None;
            }
            let mut about = [InodeRef::from(from), InodeRef::from(from)];
            for (i, (path, place)) in paths.into_iter().zip(&mut about).enumerate() {
                let resolve = Resolve { from, path };
                match self.walk(call, &resolve).await? {
                    found if found.rest > 0 => {
                        // A change that had its effect is answered as it was, whatever has become of its path.
                        let done = if is_change { self.done_before(call, cx, then).await? } else { None };
                        return Ok(done.unwrap_or(Reached::Short { path: i as u32, found }));
                    }
                    found => *place = found.end(from, &resolve.path),
                }
            }
            let [first, second] = about;
            // Under which name in which directory a file is that is opened, or made.
            let named = match &then {
                Then::CreateFile(CreateFile { name, .. }) | Then::PutFile(PutFile { name, .. }) => {
                    Some((first.id, name.clone()))
                }
                Then::OpenFile(_) => first.hint.clone(),
                _ => None,
            };
            let mut answer = self.dispatch(call, cx, then.about(first, second)).await?;
            if let (Some((dir, name)), Some(file)) = (named, file_of(&answer)) {
                self.hints.led_to(file, dir, &name);
            }
            if let (true, MetaAnswer::OpenFile(opened)) = (call.repeated, &mut answer) {
                // The answer is of what its path led to the first time, the lease of what it leads to now.
                opened.lease = FileLease::default();
            }
            reached(answer)
        })
    }

    /// Of a path that has led to a file before: the file is asked about, and in the same read whether the path still leads there. `None`
    /// if it may not. Only what takes nothing from anybody: it may be another file's.
    async fn at_known_path(
        &self,
        call: &mut Call,
        cx: Context,
        from: InodeId,
        paths: &[Vec<Name>],
        then: &Then,
    ) -> Result<Option<Reached>> {
        let ([path], Then::OpenFile(open)) = (paths, then) else { return Ok(None) };
        if open.truncate || open.want != FileWant::Read || from.is_in_snapshot() {
            return Ok(None);
        }
        let Some(steps) = self.hints.led(from, path) else { return Ok(None) };
        let Some(Step { dir, name, to }) = steps.last().cloned() else { return Ok(None) };
        if self.foreign(to).is_some() || !self.leases.takes_nothing(to) {
            return Ok(None);
        }
        call.led_by = Some(steps);
        let about = InodeRef { id: to, hint: Some((dir, name.clone())) };
        let answer = self.dispatch(call, cx, then.clone().about(about, from.into())).await;
        let is_asked = call.led_by.take().is_none();
        match answer {
            Ok(answer) if is_asked => reached(answer).map(Some),
            Err(error) if is_asked && error.code != Code::Stale => Err(error),
            _ => {
                self.hints.led_elsewhere(dir, &name);
                Ok(None)
            }
        }
    }

    async fn done_before(&self, call: &mut Call, cx: Context, then: Then) -> Result<Option<Reached>> {
        let request = then.about(NOTHING.into(), NOTHING.into());
        match self.mutate(call, cx, request.number(), request, None).await {
            Ok(answer) => Ok(reached(answer).ok().filter(|_| call.repeated)),
            // Another knows, or it is known later.
            Err(error)
                if error.code == Code::HeldElsewhere || matches!(error.retry(), Retry::Yes | Retry::IfIdempotent) =>
            {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }
}

/// The file that a request has opened or made.
fn file_of(answer: &MetaAnswer) -> Option<InodeId> {
    match answer {
        MetaAnswer::OpenFile(opened) | MetaAnswer::CreateFile(opened) => Some(opened.attr.id),
        MetaAnswer::PutFile(put) => Some(put.attr.id),
        _ => None,
    }
}

fn reached(answer: MetaAnswer) -> Result<Reached> {
    ThenAnswer::of(answer).map(Reached::Done).ok_or_else(|| Error::bare(Code::Internal))
}
