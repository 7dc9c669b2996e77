//! From messages to operations and back: fills hints in, runs the transaction, adds grants and chains.

use crate::alone::Touched;
use crate::background::Leaves;
use crate::call::Call;
use crate::changes::makes_file_in;
use crate::complete::claim;
use crate::config::PlantedBug;
use crate::files::NewFile;
use crate::server::MetaServer;
use crate::snapshots::{asks_of, expect_reading};
use braid_api::meta::*;
use braid_api::{Code, Context, Error, Namespace, Result, When, trace};
use braid_meta_engine::{Early, Engine};
use braid_meta_namespace::ops::lookup::IfLedBy;
use braid_meta_namespace::ops::rename::RenameAlong;
use braid_meta_namespace::ops::{mark_stable, move_chunk};
use braid_meta_namespace::{Mutation, OpContext, OpError, Query, ReadOnly, Recorded};
use braid_types::{InodeId, Name, SessionId};

/// How often what a question leads to is read again because another session was alone there. Whoever is asked to leave a slot does not
/// have it again for a second.
const LOOKS: u32 = 16;

impl Namespace for MetaServer {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        // What it asks for is that nothing else be answered any more.
        let leaves = matches!(request, MetaRequest::AdminQuery(AdminQuery::MoveAway { .. }));
        let (name, begun) = (request.name(), self.expect_own(&request)?);
        let mut call = Call { at_holder: begun.is_at_holder(), ..Call::new(None) };
        let answer = trace::under(cx.trace, self.dispatch(&mut call, cx, request)).await;
        if !leaves {
            self.may_answer().await?;
        }
        self.still_own(name, begun)?;
        answer.inspect_err(|error| self.may_be_outdated(error))
    }

    async fn execute_early(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        let session = cx.token.session;
        let early =
            (cx.when == When::Early && self.config.early_reply && self.beside.is_none() && session != SessionId(0))
                .then(|| Early::of(session.0));
        let (name, begun) = (request.name(), self.expect_own(&request)?);
        let mut call = Call { at_holder: begun.is_at_holder(), ..Call::new(early) };
        // What it waits for is found by the operation it is for.
        let answer = trace::under(cx.trace, self.dispatch(&mut call, cx, request)).await;
        self.may_answer().await?;
        self.still_own(name, begun)?;
        let answer = answer.inspect_err(|error| self.may_be_outdated(error))?;
        // Whether it is open is asked first: what is said of durability is at least as new.
        let open = self.recovery.is_open();
        let (incarnation, durable) = (self.incarnation, self.engine.durable());
        // Where several serve nothing is answered before it is durable. What a client keeps of a server before that it sends to who leads.
        let incarnation = if self.leads() { incarnation } else { 0 };
        Ok((answer, Mark { incarnation, durable, open, early: call.mark() }))
    }
}

impl MetaServer {
    pub(crate) async fn dispatch(&self, call: &mut Call, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        let waits = self.config.planted != Some(PlantedBug::AloneNotWaitedFor);
        match waits && self.leases.others_work_alone(cx.token.session) {
            // Rare, and large.
            true => Box::pin(self.serve_beside(call, cx, request)).await,
            false => self.serve(call, cx, request).await,
        }
    }

    /// What others work on alone is seen when they have left it.
    async fn serve_beside(&self, call: &mut Call, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        let session = cx.token.session;
        self.leases.until_left(session, &Touched::by(&request)).await?;
        if request.is_mutation() {
            return self.serve(call, cx, request).await;
        }
        for _ in 0..LOOKS {
            let answer = self.serve(call, cx, request.clone()).await?;
            let touched = Touched::told_in(&answer);
            if !self.leases.is_in_the_way(session, &touched) {
                return Ok(answer);
            }
            self.leases.until_left(session, &touched).await?;
        }
        Err(Error::new(Code::Busy, request.name(), "others work alone on what it leads to all the time"))
    }

    async fn serve(&self, call: &mut Call, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        let number = request.number();
        let session = cx.token.session;
        self.recovery.admit(&request)?;
        self.meet(session).await?;
        if self.sessions.is_abandoned(session)
            && !matches!(request, MetaRequest::CloseSession(_) | MetaRequest::EndSession(_))
        {
            return Err(Error::new(Code::SessionFenced, format_args!("session {session}"), "it is being ended"));
        }
        // Any message is a sign of life.
        self.sessions.with(session, |s| s.seen = self.env.clock.now());
        // It caches nothing any more, however long a data server that is away delays its end.
        if matches!(request, MetaRequest::CloseSession(_) | MetaRequest::EndSession(_)) {
            self.leases.gone(session);
            self.sessions.with(session, |s| s.gone = true);
            // Whoever does not hear it hears that the session ends.
            let _ = self.ends_elsewhere(session, Ends::Gone).await;
        }
        let of_snapshot = asks_of(&request);
        of_snapshot.map_or(Ok(()), |id| expect_reading(&request, id))?;
        let lease = self.settle_file(session, &request).await?;
        if let Some(id) = of_snapshot {
            return self.show(session, id, lease, request).await;
        }
        Ok(match request {
            MetaRequest::OpenSession(m) => MetaAnswer::OpenSession(self.open_session(m).await?),
            MetaRequest::RenewSession(m) => MetaAnswer::RenewSession(self.renew_session(session, &m)?),
            MetaRequest::CloseSession(_) if !self.recovery.is_open() => {
                self.abandon(session);
                MetaAnswer::CloseSession(())
            }
            MetaRequest::EndSession(_) => {
                match self.recovery.is_open() {
                    true => self.end_or_try_again(session, Leaves::Silently).await?,
                    false => self.abandon(session),
                }
                MetaAnswer::EndSession(())
            }
            MetaRequest::Replay(m) => MetaAnswer::Replay(self.replay(cx, m).await?),
            MetaRequest::Settle(_) => {
                self.engine.settle().await.map_err(OpError::from)?;
                MetaAnswer::Settle(())
            }
            MetaRequest::CloseSession(_) => {
                self.end_or_try_again(session, Leaves::InOrder).await?;
                MetaAnswer::CloseSession(())
            }
            MetaRequest::Lookup(m) => MetaAnswer::Lookup(self.lookup(call, session, m).await?),
            MetaRequest::LookToOpen(m) => MetaAnswer::LookToOpen(self.look_to_open(call, session, m).await?),
            MetaRequest::OpenAhead(m) => MetaAnswer::OpenAhead(self.open_ahead(call, session, m).await?),
            MetaRequest::StatNames(m) => MetaAnswer::StatNames(self.stat_names(call, session, m).await?),
            MetaRequest::Resolve(m) => MetaAnswer::Resolve(self.resolve(call, session, m).await?),
            MetaRequest::AtPath(m) => MetaAnswer::AtPath(self.at_path(call, cx, m).await?),
            MetaRequest::Walk(m) => MetaAnswer::Walk(self.walk_granting(call, session, m).await?),
            MetaRequest::GetAttr(mut m) => {
                self.hint(&mut m.inode);
                let ask = self.leases.ask(session);
                let mut answer = self.ask(call, m.inode.id, m).await?;
                answer.grant = claim(ask, None, Some(answer.attr.id));
                MetaAnswer::GetAttr(answer)
            }
            MetaRequest::ReadLink(mut m) => {
                self.hint(&mut m.inode);
                MetaAnswer::ReadLink(self.ask(call, m.inode.id, m).await?)
            }
            MetaRequest::OpenFile(m) if !m.truncate => {
                MetaAnswer::OpenFile(self.open_file(call, session, m, lease).await?)
            }
            MetaRequest::GetMap(mut m) => {
                self.hint(&mut m.inode);
                let mut answer = self.ask(call, m.inode.id, m).await?;
                self.complete_map(&mut answer.map).await?;
                MetaAnswer::GetMap(answer)
            }
            MetaRequest::ReadDir(m) => MetaAnswer::ReadDir(self.read_dir(call, session, m).await?),
            MetaRequest::GetPlace(m) => MetaAnswer::GetPlace(self.ask(call, m.id, m).await?),
            MetaRequest::GetXattr(mut m) => {
                self.hint(&mut m.inode);
                MetaAnswer::GetXattr(self.ask(call, m.inode.id, m).await?)
            }
            MetaRequest::ListXattr(mut m) => {
                self.hint(&mut m.inode);
                MetaAnswer::ListXattr(self.ask(call, m.inode.id, m).await?)
            }
            MetaRequest::GetPolicy(mut m) => {
                self.hint(&mut m.inode);
                MetaAnswer::GetPolicy(self.ask(call, m.inode.id, m).await?)
            }
            MetaRequest::GetStatFs(m) => MetaAnswer::GetStatFs(self.statfs(call, m.of).await?),
            MetaRequest::GetContainers(m) => MetaAnswer::GetContainers(self.read_containers(m.ids).await?),
            MetaRequest::GetServers(_) => MetaAnswer::GetServers(Servers {
                version: self.servers.version(),
                servers: self.servers.infos(self.env.clock.now()),
            }),
            MetaRequest::RegisterServer(m) => MetaAnswer::RegisterServer(self.register_server(m).await?),
            MetaRequest::Heartbeat(m) => MetaAnswer::Heartbeat(HeartbeatAnswer {
                register_again: !self.servers.heartbeat(&m, self.env.clock.now()),
                move_bytes_per_s: self.move_share(),
                epoch: self.leases.epoch(),
                leads_for_ms: self.leads_for_ms(),
            }),
            MetaRequest::AdminQuery(m) => MetaAnswer::AdminQuery(self.admin(m).await?),
            MetaRequest::Listen(m) => MetaAnswer::Listen(self.leases.listen(session, &m).await?),
            MetaRequest::Acknowledge(m) => {
                self.leases.acknowledged(session, m.member, &m.revocations);
                MetaAnswer::Acknowledge(())
            }
            MetaRequest::Reassert(m) => MetaAnswer::Reassert(self.leases.reasserted(session, &m)?),
            MetaRequest::SetLock(m) => MetaAnswer::SetLock(self.leases.set_lock(session, &m).await?),
            MetaRequest::LeaveLock(m) => MetaAnswer::LeaveLock(self.leases.leave_lock(session, &m)?),
            MetaRequest::TestLock(m) => MetaAnswer::TestLock(self.leases.test_lock(session, &m).await?),
            MetaRequest::YieldFiles(m) => {
                self.leases.yielded(session, &m);
                MetaAnswer::YieldFiles(())
            }
            MetaRequest::MarkStable(m) => {
                if m.chunks.len() > MarkStable::MAX {
                    return Err(Error::new(Code::Invalid, "MarkStable", format_args!("{} chunks", m.chunks.len())));
                }
                self.engine.transact(0, mark_stable::Mark(m)).await.map_err(Error::from)?;
                MetaAnswer::MarkStable(())
            }
            MetaRequest::ServerSays(m) => MetaAnswer::ServerSays(self.server_says(m)?),
            MetaRequest::ListPlaced(m) => MetaAnswer::ListPlaced(self.ask(call, InodeId(0), m).await?),
            MetaRequest::FindKept(m) => MetaAnswer::FindKept(self.ask(call, m.inode, m).await?),
            MetaRequest::MovesOn(m) => MetaAnswer::MovesOn(self.moves_on(m).await?),
            MetaRequest::SealFile(m) => self.seal_file(call, cx, number, m).await?,
            MetaRequest::HoldSealed(m) => MetaAnswer::HoldSealed(self.hold_sealed(session, m).await?),
            MetaRequest::TakeSlot(m) => MetaAnswer::TakeSlot(self.take_slot(session, m).await?),
            MetaRequest::LeaveSlots(m) => {
                self.leases.leaves_slots(session, &m);
                MetaAnswer::LeaveSlots(())
            }
            MetaRequest::LeaveSealed(m) => {
                self.leases.leave_sealed(session, &m);
                MetaAnswer::LeaveSealed(())
            }
            m @ (MetaRequest::GetRoster(_)
            | MetaRequest::RenewTerm(_)
            | MetaRequest::AskToServe(_)
            | MetaRequest::AnnounceAt(_)
            | MetaRequest::ReleaseAt(_)
            | MetaRequest::SettleFileAt(_)
            | MetaRequest::EndsAt(_)
            | MetaRequest::IsSilent(_)
            | MetaRequest::EndSyncAt(_)
            | MetaRequest::StillAt(_)
            | MetaRequest::HasOrphan(_)) => Box::pin(self.beside(session, m)).await?,
            mutation => {
                let mut answer = self.mutate(call, cx, number, mutation, None).await?;
                if let MetaAnswer::OpenFile(opened) = &mut answer {
                    opened.lease = lease;
                }
                answer
            }
        })
    }

    /// What is told of a file that is opened, and not cut, under this lease.
    async fn open_file(
        &self,
        call: &mut Call,
        session: SessionId,
        mut m: OpenFile,
        lease: FileLease,
    ) -> Result<OpenAnswer> {
        self.hint(&mut m.inode);
        let ask = self.leases.ask(session);
        let (id, query) = (m.inode.id, self.opening(m));
        let mut answer = match call.led_by.take() {
            Some(steps) => self.ask(call, id, IfLedBy { steps, query }).await?,
            None => self.ask(call, id, query).await?,
        };
        answer.grant = claim(ask, None, Some(answer.attr.id));
        answer.lease = lease;
        self.complete_map(&mut answer.map).await?;
        Ok(answer)
    }

    /// Runs a change, or with what it was answered under repeats it.
    pub(crate) async fn mutate(
        &self,
        call: &mut Call,
        cx: Context,
        number: u8,
        request: MetaRequest,
        before: Option<EarlyMark>,
    ) -> Result<MetaAnswer> {
        let session = cx.token.session;
        if session == SessionId(0) || cx.request.0 == 0 {
            return Err(Error::new(Code::BadMessage, request.name(), "a change needs a session and a request id"));
        }
        let is_tree = matches!(&request, MetaRequest::RemoveDir(m) if m.tree);
        let policy_of = if let MetaRequest::SetPolicy(m) = &request { Some(m.inode.id) } else { None };
        let looked_through = match &request {
            MetaRequest::RemoveDir(m) if m.tree && before.is_none() => {
                self.expect_no_seals(call, Some((session, cx.request)), m).await?
            }
            _ => None,
        };
        let mut answer = match before {
            // It was announced when it ran first, and until it has run again nobody is answered.
            Some(_) => self.change(call, cx, number, request, before, None).await?,
            None => {
                let early = call.early;
                let change = |announced| {
                    let request = request.clone();
                    async move {
                        let mut call = Call { looked_through, ..Call::new(early) };
                        let answer = self.change(&mut call, cx, number, request, None, announced).await;
                        (call, answer)
                    }
                };
                self.announced(call, cx, &request, change).await.map_err(|e| match looked_through {
                    // Another directory has the name by now, which nobody has looked through.
                    Some(dir) if e.code == Code::StaleLease => {
                        Error::new(Code::Busy, format_args!("inode {dir}"), "another has its name by now")
                    }
                    _ => e,
                })?
            }
        };
        self.complete(&mut answer).await?;
        // What is left to do behind the answer, it waits for.
        match (&answer, policy_of) {
            (MetaAnswer::RemoveDir(gone), _) if is_tree => self.tree_removed(gone.attr.id).await,
            (MetaAnswer::ChangeTree(op), _) => self.tree_is_changed(*op).await?,
            (MetaAnswer::SetPolicy(()), Some(top)) => self.policy_is_told(top).await?,
            _ => {}
        }
        Ok(answer)
    }

    async fn change(
        &self,
        call: &mut Call,
        cx: Context,
        number: u8,
        request: MetaRequest,
        before: Option<EarlyMark>,
        announced: Option<[InodeId; 2]>,
    ) -> Result<MetaAnswer> {
        let session = cx.token.session;
        let op = OpContext {
            session,
            session_epoch: cx.token.session_epoch,
            request: cx.request,
            now: before.map_or_else(|| self.env.clock.wall(), |before| before.now),
            fresh: before.map_or(InodeId(0), |before| before.fresh),
            others: self.beside.is_some() || self.sessions.others(session),
            early: call.early.is_some() && request.may_be_early(),
            announced,
            policy_root: makes_file_in(&request).and_then(|dir| self.hints.policy_root(dir)),
            // What is repeated was answered when there was enough; refused, it would be lost.
            ..self.may_refuse(before.is_none())
        };
        call.now = op.now;
        if op.early {
            // At the latest when its transaction has run is it on record; an outdated time here does no harm.
            self.sessions.with(session, |s| s.keeps_since = Some(self.env.clock.now()));
        }
        Ok(match request {
            MetaRequest::ChangeAttr(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::ChangeAttr).await?
            }
            MetaRequest::MakeNode(mut m) => {
                self.hint(&mut m.parent);
                let (op, place) = (self.fresh(call, op).await?, (m.parent.id, m.name.clone()));
                let answer = self.record(call, place.0, op, number, m, MetaAnswer::MakeNode).await?;
                self.note_entry(&answer, &place);
                answer
            }
            MetaRequest::CreateFile(mut m) => {
                self.hint(&mut m.parent);
                let (op, place) = (self.fresh(call, op).await?, (m.parent.id, m.name.clone()));
                let new = NewFile::take(&self.leases, session, op.new_id(place.0, false));
                let answer = self.record(call, place.0, op, number, m, MetaAnswer::CreateFile).await?;
                self.note_entry(&answer, &place);
                new.made(answer)
            }
            MetaRequest::CreateTemporary(mut m) => {
                self.hint(&mut m.parent);
                let op = self.fresh(call, op).await?;
                let new = NewFile::take(&self.leases, session, op.new_id(m.parent.id, false));
                let answer = self.record(call, m.parent.id, op, number, m, MetaAnswer::CreateTemporary).await?;
                if let MetaAnswer::CreateTemporary(made) = &answer {
                    self.hold_orphan(session, made.attr.id);
                }
                new.made(answer)
            }
            MetaRequest::OpenFile(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::OpenFile).await?
            }
            MetaRequest::CommitFile(mut m) => {
                self.hint(&mut m.inode);
                let (id, inline) = (m.inode.id, m.content.is_in_row());
                let answer = self.record(call, id, op, number, m, MetaAnswer::CommitFile).await?;
                self.still_kept(id, &op, inline)?;
                answer
            }
            MetaRequest::DropChunks(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::DropChunks).await?
            }
            MetaRequest::ChangeTree(mut m) => {
                self.hint(&mut m.dir);
                self.record(call, m.dir.id, op, number, m, MetaAnswer::ChangeTree).await?
            }
            MetaRequest::Unlink(mut m) => {
                self.hint(&mut m.parent);
                let open_here = m.open_here;
                let answer = self.record(call, m.parent.id, op, number, m, MetaAnswer::Unlink).await?;
                if let MetaAnswer::Unlink(gone) = &answer {
                    self.note_gone(&op, &gone.attr, open_here);
                }
                answer
            }
            MetaRequest::RemoveDir(mut m) => {
                self.hint(&mut m.parent);
                let op = call.looked_through.map_or(Ok(op), |dir| op.expecting(dir)).map_err(Error::from)?;
                self.record(call, m.parent.id, op, number, m, MetaAnswer::RemoveDir).await?
            }
            MetaRequest::Rename(mut m) => {
                self.hint(&mut m.from);
                self.hint(&mut m.to);
                let (to, open_here) = ((m.to.id, m.to_name.clone()), m.open_here);
                let (from, exchange) = ((m.from.id, m.from_name.clone()), m.mode == RenameKind::Exchange);
                let (above_from, above_to) = (self.hints.way_up(from.0), self.hints.way_up(to.0));
                let along = RenameAlong { rename: m, above_from, above_to };
                let answer = self.record(call, from.0, op, number, along, MetaAnswer::Rename).await?;
                if let MetaAnswer::Rename(done) = &answer {
                    self.hints.note(&done.moved, to.0, &to.1);
                    match &done.other {
                        Some(other) if exchange => self.hints.note(other, from.0, &from.1),
                        Some(other) => self.note_gone(&op, other, open_here),
                        None => {}
                    }
                }
                answer
            }
            MetaRequest::Link(mut m) => {
                self.hint(&mut m.parent);
                self.hint(&mut m.inode);
                self.record(call, m.parent.id, op, number, m, MetaAnswer::Link).await?
            }
            MetaRequest::SetXattr(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::SetXattr).await?
            }
            MetaRequest::RemoveXattr(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::RemoveXattr).await?
            }
            MetaRequest::PutFile(mut m) => {
                self.hint(&mut m.parent);
                let (op, place) = (self.fresh(call, op).await?, (m.parent.id, m.name.clone()));
                let open_here = m.open_here;
                let answer = self.record(call, place.0, op, number, m, MetaAnswer::PutFile).await?;
                self.note_entry(&answer, &place);
                if let MetaAnswer::PutFile(EntryAnswer { replaced: Some(gone), .. }) = &answer {
                    self.note_gone(&op, gone, open_here);
                }
                answer
            }
            MetaRequest::SealFile(m) => self.record(call, m.inode.id, op, number, m, MetaAnswer::SealFile).await?,
            m @ (MetaRequest::TakeRoom(_) | MetaRequest::ReturnRoom(_)) => self.room(call, op, number, m).await?,
            MetaRequest::SetPolicy(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::SetPolicy).await?
            }
            MetaRequest::TakeSpares(m) => self.take_spares(call, op, number, m).await?,
            MetaRequest::TakeBeside(m) => self.take_beside(call, op, number, m).await?,
            MetaRequest::ReturnSpares(m) => {
                self.record(call, InodeId(0), op, number, m, MetaAnswer::ReturnSpares).await?
            }
            MetaRequest::MoveKept(m) => self.record(call, m.inode, op, number, m, MetaAnswer::MoveKept).await?,
            MetaRequest::MoveChunk(mut m) => {
                self.hint(&mut m.inode);
                let id = m.inode.id;
                // Whoever has it keeps it until the session has ended or gives it up, and it does not while it asks for this.
                let put = move_chunk::PutInPlace { message: m, alone: self.leases.owner(id) == Some(session) };
                self.record(call, id, op, number, put, MetaAnswer::MoveChunk).await?
            }
            other => return Err(Error::new(Code::BadMessage, other.name(), "is no change")),
        })
    }

    pub(crate) async fn record<M: Mutation>(
        &self,
        call: &mut Call,
        partition: InodeId,
        cx: OpContext,
        message: u8,
        mutation: M,
        answer: fn(M::Answer) -> MetaAnswer,
    ) -> Result<MetaAnswer> {
        let known = cx.policy_root;
        let recorded = Recorded { cx, mutation, message, answer };
        let done = match call.early.filter(|_| cx.early) {
            Some(early) => self.engine.transact_early(partition.0, early, recorded).await.map(|(outcome, order)| {
                call.saw(order);
                outcome
            }),
            None => self.engine.transact(partition.0, recorded).await,
        };
        let done = done.map_err(Error::from)?;
        call.repeated |= self.noted(&done);
        if let Some((dir, root)) = done.policy_of.filter(|(_, root)| known != Some(*root)) {
            self.hints.set_policy_root(dir, root);
        }
        Ok(done.answer)
    }

    pub(crate) async fn ask<Q: Query>(&self, call: &mut Call, partition: InodeId, query: Q) -> Result<Q::Answer> {
        let asked = match call.early {
            Some(early) => self.engine.read_early(partition.0, early, ReadOnly(query)).await.map(|(answer, order)| {
                call.saw(order);
                answer
            }),
            None => self.engine.read(partition.0, ReadOnly(query)).await,
        };
        asked.map_err(Error::from)
    }

    async fn fresh(&self, call: &mut Call, op: OpContext) -> Result<OpContext> {
        let fresh = if op.fresh.0 == 0 { self.ids.fresh(&self.env, &self.engine).await? } else { op.fresh };
        call.fresh = fresh;
        Ok(OpContext { fresh, ..op })
    }

    pub(crate) fn hint(&self, inode: &mut InodeRef) {
        if inode.hint.is_none() && inode.id != InodeId::ROOT {
            inode.hint = self.hints.get(inode.id);
        }
    }

    fn note_entry(&self, answer: &MetaAnswer, place: &(InodeId, Name)) {
        let attr = match answer {
            MetaAnswer::MakeNode(made) | MetaAnswer::PutFile(made) => &made.attr,
            MetaAnswer::CreateFile(made) => &made.attr,
            _ => return,
        };
        self.hints.note(attr, place.0, &place.1);
    }

    /// An inode lost a name; if it was the last one and the inode stays as an orphan, it goes onto the list.
    fn note_gone(&self, op: &OpContext, attr: &braid_types::Attr, open_here: bool) {
        self.hints.forget(attr.id);
        if attr.nlink > 0 || !attr.is_file() || !(open_here || op.others) {
            return;
        }
        match open_here {
            true => self.hold_orphan(op.session, attr.id),
            false if self.leads() => self.orphans.add(attr.id),
            false => self.tell_of_orphan(attr.id, None),
        }
    }

    /// An orphan that `session` is known to have open. It is held for the session before it is listed, so that
    /// no moment lets it go.
    pub(crate) fn hold_orphan(&self, session: SessionId, inode: InodeId) {
        if !self.leads() {
            return self.tell_of_orphan(inode, Some(session));
        }
        self.sessions.with(session, |s| s.orphans_held.insert(inode));
        self.orphans.add_held(inode);
    }
}
