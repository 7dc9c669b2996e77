//! The metadata server's door: between wire and server, where protocol states are counted and mistakes are planted. The simulator's own: the
//! server knows nothing of it.

use crate::bug::Bug;
use crate::check::unlinked;
use crate::cluster::Cluster;
use crate::failures::Invariant;
use braid_api::admin::AdminQuery;
use braid_api::lease::{LockReply, Order};
use braid_api::meta::{
    Acknowledge, ChunkRef, CommitContent, CommitFile, Content, EarlyMark, Grant, Kept, LeaveSealed, MapAnswer, Mark,
    MetaAnswer, MetaRequest, Namespace, OpenAnswer, YieldFiles,
};
use braid_api::{Code, Context, LockKind, Result, When};
use braid_meta_server::MetaServer;
use braid_types::{InodeId, SessionId, Token};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct MetaDoor {
    server: Arc<MetaServer>,
    cluster: Arc<Cluster>,
    /// Changes under way.
    changes: Arc<()>,
    /// Who reads which sealed file without asking: as whom it would say that it has left it.
    holds: Mutex<BTreeMap<(SessionId, InodeId), (Token, u64)>>,
}

impl MetaDoor {
    pub fn new(server: Arc<MetaServer>, cluster: Arc<Cluster>) -> Self {
        MetaDoor { server, cluster, changes: Arc::default(), holds: Mutex::default() }
    }

    fn count(&self, what: &'static str) {
        self.cluster.coverage.count(what);
    }

    /// Locks that a session says it holds.
    fn saw_locks(&self, request: &MetaRequest) {
        let (what, locks) = match request {
            MetaRequest::YieldFiles(given_up) => ("lock recalled with its file", &given_up.locks),
            MetaRequest::Reassert(said) => ("lock kept through a start of the metadata server", &said.locks),
            _ => return,
        };
        self.cluster.coverage.add(what, locks.iter().map(|(_, held)| held.len() as u64).sum());
    }

    /// Who reads sealed files without asking.
    fn saw_holds(&self, token: Token, request: &MetaRequest, answer: &MetaAnswer) {
        let (session, mut holds) = (token.session, self.holds.lock());
        match (request, answer) {
            (MetaRequest::HoldSealed(hold), MetaAnswer::HoldSealed(Some(_))) => {
                holds.insert((session, hold.inode.id), (token, hold.number));
            }
            (MetaRequest::Reassert(said), _) => {
                self.cluster
                    .coverage
                    .add("sealed file held through a start of the metadata server", said.sealed.len() as u64);
                holds.extend(said.sealed.iter().map(|(inode, number)| ((session, *inode), (token, *number))));
            }
            (MetaRequest::LeaveSealed(left), _) => {
                left.holds.iter().for_each(|(inode, _)| _ = holds.remove(&(session, *inode)));
            }
            _ => {}
        }
    }

    /// Says for those who read the file without asking that they have left it.
    async fn leave_for_all(&self, cx: &Context, inode: InodeId) {
        let held: Vec<(Token, u64)> = {
            let holds = self.holds.lock();
            holds.iter().filter(|((_, of), _)| *of == inode).map(|(_, held)| *held).collect()
        };
        for (token, number) in held {
            let leave = LeaveSealed { holds: vec![(inode, number)] };
            let _ = self.server.execute(Context { token, ..*cx }, MetaRequest::LeaveSealed(leave)).await;
        }
    }

    fn saw(&self, session: SessionId, request: &MetaRequest, result: &Result<MetaAnswer>) {
        match result {
            Ok(answer) => {
                self.saw_locks(request);
                self.cluster.witness.answered(session, request, answer);
                if let (MetaRequest::SetLock(asked), MetaAnswer::SetLock(LockReply::Granted)) = (request, answer)
                    && asked.lock.kind != LockKind::Unlock
                {
                    let by = (self.cluster.meta_starts(), session);
                    self.cluster.witness.lock_granted(by, &asked.lock);
                }
                match answer {
                    MetaAnswer::CommitFile(commit) if !commit.instead.chunks.is_empty() => {
                        self.count("commit told to use another's chunk instead");
                    }
                    MetaAnswer::SetLock(LockReply::Granted) => self.count("lock granted by the metadata server"),
                    MetaAnswer::SetLock(LockReply::Waiting) => self.count("lock waited for at the metadata server"),
                    MetaAnswer::MoveChunk(is_there) => match request {
                        MetaRequest::MoveChunk(moved) if moved.why != braid_api::meta::MoveKind::Moved => {
                            self.count(match is_there {
                                true => "chunk of a snapshot made way for another",
                                false => "chunk of a snapshot had made way for another before",
                            })
                        }
                        MetaRequest::MoveChunk(moved) if *is_there => {
                            unlinked::check_moved(&self.cluster, moved.to);
                            self.cluster.answered.moved(moved.from);
                        }
                        _ => {}
                    },
                    MetaAnswer::Acknowledge(()) => self.count("leases dropped for another mount's change"),
                    MetaAnswer::Reassert(answer) => {
                        self.count("leases given up after a start of the metadata server");
                        let kept = answer.held.len() as u64;
                        self.cluster.coverage.add("file lease kept through a start of the metadata server", kept);
                        self.cluster.coverage.add("locks lost to another mount", answer.locks_lost.len() as u64);
                    }
                    MetaAnswer::OpenAhead(opened) if opened.iter().skip(1).any(Option::is_some) => {
                        self.count("file opened with one before it");
                    }
                    MetaAnswer::YieldFiles(()) => self.count("file given up for another mount"),
                    MetaAnswer::Heartbeat(beat) if beat.register_again => self.count("data server registered again"),
                    _ => {}
                }
            }
            Err(error) => match error.code {
                Code::Busy if matches!(request, MetaRequest::AdminQuery(AdminQuery::CreateSnapshot { .. })) => {
                    self.count("snapshot not made in time");
                }
                Code::SessionUnknown => self.count("unknown session refused"),
                Code::MaybeCommitted => self.count("outcome of a commit unknown"),
                Code::StaleTruncGen => self.count("commit under a stale truncate generation refused"),
                Code::Recovering => self.count("request told to come again while kept changes are collected"),
                Code::NoServers => self.count("no data server for a new chunk"),
                _ => {}
            },
        }
    }
}

impl Namespace for MetaDoor {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        Ok(self.execute_early(Context { when: When::Durable, ..cx }, request).await?.0)
    }

    async fn execute_early(&self, mut cx: Context, mut request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        if let MetaRequest::Replay(replay) = &mut request {
            if self.cluster.settings.bug == Some(Bug::LostReplayOfMetadata) {
                replay.kept.clear();
            }
            let is_unanswered = |kept: &Kept| kept.mark.number == EarlyMark::UNANSWERED;
            if self.cluster.settings.bug == Some(Bug::LostReplayOfUnanswered) {
                replay.kept.retain(|kept| !is_unanswered(kept));
            }
            let unanswered = replay.kept.iter().filter(|kept| is_unanswered(kept)).count();
            self.cluster.coverage.add("removal sent again unanswered", unanswered as u64);
            self.cluster.coverage.add("kept changes sent again to the metadata server", replay.kept.len() as u64);
        }
        let (session, number) = (cx.token.session, cx.request);
        let witness = &self.cluster.witness;
        let repeated = request.is_mutation() && witness.was_done(session, number);
        if repeated && self.cluster.settings.bug == Some(Bug::RequestAppliedTwice) {
            cx.request = witness.forge();
        }
        if let MetaRequest::CommitFile(CommitFile { content: CommitContent::Chunks(chunks), .. }) = &mut request {
            let stable = chunks.iter().filter(|chunk| chunk.stable).count() as u64;
            self.cluster.coverage.add("chunk committed and known to be stable", stable);
            let early = self.cluster.settings.bug == Some(Bug::MarkedTooEarly);
            chunks.iter_mut().for_each(|chunk| chunk.stable |= early);
        }
        if let (MetaRequest::YieldFiles(given_up), Some(Bug::LocksNotSaid)) = (&mut request, self.cluster.settings.bug)
        {
            given_up.locks.clear();
        }
        if let (MetaRequest::Reassert(said), Some(Bug::HoldsForgotten)) = (&mut request, self.cluster.settings.bug) {
            said.sealed.clear();
        }
        if let (MetaRequest::SealFile(seal), Some(Bug::UnsealedUnderReaders)) = (&request, self.cluster.settings.bug)
            && !seal.sealed
        {
            self.leave_for_all(&cx, seal.inode.id).await;
        }
        if let MetaRequest::MarkStable(mark) = &request {
            self.cluster.coverage.add("chunk marked as stable after its commit", mark.chunks.len() as u64);
        }
        if let MetaRequest::ServerSays(piece) = &request {
            self.cluster.words.to_leader(&self.cluster, piece);
        }
        if let MetaRequest::OpenSession(open) = &request
            && witness.registers(open.client)
        {
            self.count("session registered again");
        }
        let change = request.is_mutation().then(|| self.changes.clone());
        let mut marked = self.server.execute_early(cx, request.clone()).await;
        drop(change);
        if self.cluster.settings.bug == Some(Bug::GrantedDuringACommit) && Arc::strong_count(&self.changes) > 1 {
            let all = Grant { entry: true, attr: true };
            match &mut marked {
                Ok((MetaAnswer::Lookup(answer), _)) => answer.grant = all,
                Ok((MetaAnswer::GetAttr(answer), _)) => answer.grant = all,
                _ => {}
            }
        }
        if self.cluster.settings.bug == Some(Bug::AcknowledgedBeforeDropped)
            && let Ok((MetaAnswer::Listen(heard), _)) = &mut marked
        {
            let revoked = heard.orders.extract_if(.., |order| matches!(order, Order::Revoke { .. }));
            let numbers = revoked.filter_map(|order| match order {
                Order::Revoke { revocation, .. } => Some(revocation),
                Order::Recall { .. } | Order::Leave { .. } | Order::LeaveSlot { .. } | Order::Renew => None,
            });
            let acknowledge = Acknowledge { member: heard.member, revocations: numbers.collect() };
            self.server.execute(cx, MetaRequest::Acknowledge(acknowledge)).await?;
        }
        if self.cluster.settings.bug == Some(Bug::GivenUpUnflushed)
            && let Ok((MetaAnswer::Listen(heard), _)) = &mut marked
        {
            let recalled = heard.orders.extract_if(.., |order| matches!(order, Order::Recall { .. }));
            let files = recalled.filter_map(|order| match order {
                Order::Recall { inode, generation, to, .. } => Some((inode, generation, to)),
                Order::Revoke { .. } | Order::Leave { .. } | Order::LeaveSlot { .. } | Order::Renew => None,
            });
            let given_up = YieldFiles {
                member: heard.member,
                files: files.collect(),
                locks: Vec::new(),
                locks_done: 0,
                handles: Vec::new(),
            };
            self.server.execute(cx, MetaRequest::YieldFiles(given_up)).await?;
        }
        if let (Some(Bug::WritesFrozen), Ok((answer, _))) = (self.cluster.settings.bug, &mut marked) {
            chunks_in(answer).iter_mut().for_each(|chunk| chunk.frozen = false);
        }
        if let (true, Ok((_, Mark { early: Some(_), .. }))) = (request.is_mutation(), &marked) {
            self.count("answered before it was durable");
        }
        let (_, failed) = self.server.repeated();
        if failed > 0 {
            let failures = &self.cluster.around.failures;
            failures.add(Invariant::EarlyAnswersAreKept, format_args!("{failed} changes failed when repeated"));
        }
        let mark = marked.as_ref().map(|(_, mark)| *mark).unwrap_or_default();
        let result = marked.map(|(answer, _)| answer);
        if result.is_ok() && request.is_mutation() {
            if repeated {
                self.count("request answered from its row");
            }
            witness.done(session, number);
        }
        self.saw(session, &request, &result);
        if let Ok(answer) = &result {
            self.saw_holds(cx.token, &request, answer);
        }
        let shown = !matches!(
            request,
            MetaRequest::Heartbeat(_)
                | MetaRequest::RenewSession(_)
                | MetaRequest::Listen(_)
                | MetaRequest::ServerSays(_)
        );
        if shown {
            let history = &self.cluster.around.history;
            history.detail("meta", || format!("{session}.{number}: {request:?} -> {result:?} {mark:?}"));
        }
        Ok((result?, mark))
    }
}

/// Chunks of a file that an answer says where they are.
fn chunks_in(answer: &mut MetaAnswer) -> &mut [ChunkRef] {
    let page = match answer {
        MetaAnswer::CommitFile(commit) | MetaAnswer::DropChunks(commit) => &mut commit.instead,
        MetaAnswer::CreateFile(OpenAnswer { map, .. })
        | MetaAnswer::OpenFile(OpenAnswer { map, .. })
        | MetaAnswer::GetMap(MapAnswer { map, .. }) => match &mut map.content {
            Content::Chunked(page) => page,
            Content::Inline(_) => return &mut [],
        },
        _ => return &mut [],
    };
    &mut page.chunks
}
