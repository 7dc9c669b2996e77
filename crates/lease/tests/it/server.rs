//! A slot holder under the hands of a test: what it says to each event, and time that passes.
#![allow(clippy::unwrap_used)]

use braid_lease::*;
use braid_types::{ByteRange, InodeId, MemberId, MembershipEpoch, SessionId, SlotSet};
use std::time::Duration;

pub const A: SessionId = SessionId(1);
pub const B: SessionId = SessionId(2);
pub const C: SessionId = SessionId(3);
pub const DIR: InodeId = InodeId(4096);
pub const FILE: InodeId = InodeId(8192);

pub struct Server {
    pub holder: Holder,
    pub now: Duration,
    pub last: u64,
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Server {
    pub fn new(sessions: &[SessionId]) -> Self {
        Self::with(sessions, 1000)
    }

    pub fn with(sessions: &[SessionId], leases_max: usize) -> Self {
        let mut server = Server { holder: Holder::new(Limits::default(), leases_max), now: ms(0), last: 0 };
        server.on(Event::Gained { epoch: MembershipEpoch(1), slots: SlotSet::all(), sessions: vec![] });
        sessions.iter().for_each(|session| _ = server.on(Event::Renew { session: *session }));
        server
    }

    pub fn on(&mut self, event: Event) -> Vec<Command> {
        let commands = self.holder.on(Moment(self.now), event);
        self.holder.audit(Moment(self.now)).unwrap();
        commands
    }

    /// Lets time pass in the holder's own steps.
    pub fn pass(&mut self, time: Duration, renew: &[SessionId]) -> Vec<Command> {
        let until = self.now + time;
        let mut out = Vec::new();
        while self.now < until {
            let wakeup = self.holder.wakeup().map_or(until, |at| at.0.max(self.now + ms(1)));
            self.now = wakeup.min(until).min(self.now + ms(1000));
            out.extend(self.on(Event::Tick));
            for session in renew {
                out.extend(self.on(Event::Renew { session: *session }));
            }
        }
        out.retain(|command| !matches!(command, Command::Renewed { .. }));
        out
    }

    pub fn ask_id(&mut self) -> AskId {
        self.last += 1;
        AskId(self.last)
    }

    pub fn get(&mut self, session: SessionId, key: &Key) -> Result<(), Refusal> {
        let ask = self.ask_id();
        self.on(Event::Ask { ask, session });
        let out = self.on(Event::Claim { ask, keys: vec![key.clone()] });
        match &out[0] {
            Command::Claimed { refused, .. } => refused.first().map_or(Ok(()), |(_, why)| Err(*why)),
            other => panic!("{other:?}"),
        }
    }

    pub fn announce(
        &mut self,
        session: SessionId,
        keys: &[Key],
        unlinks: Option<InodeId>,
    ) -> (AnnouncementId, Vec<Command>) {
        self.last += 1;
        let announcement = AnnouncementId { server: MemberId(1), number: self.last };
        let out = self.on(Event::Announce { announcement, session, keys: keys.to_vec(), unlinks });
        (announcement, out)
    }

    pub fn change(&mut self, session: SessionId, keys: &[Key]) {
        let (announcement, out) = self.announce(session, keys, None);
        for command in out {
            if let Command::Revoke { session, revocation, .. } = command {
                self.on(Event::Acknowledge { session, revocation, open: false });
            }
        }
        self.on(Event::Release { announcement, keep: vec![] });
    }

    pub fn open(&mut self, session: SessionId, cached_write: bool, sync_write: bool) -> Vec<Command> {
        let ask = self.ask_id();
        let handles = Handles { seq: ask.0, open: true, cached_write, sync_write };
        self.on(Event::Opened { ask, session, inode: FILE, handles })
    }

    pub fn take(&mut self, session: SessionId, want: Want) -> Vec<Command> {
        let ask = self.ask_id();
        self.on(Event::Take { ask, session, inode: FILE, want })
    }

    /// The session answers its recall as asked.
    pub fn answer(&mut self, recall: &Command, locks: Vec<HeldLock>) -> Vec<Command> {
        let Command::Recall { session, inode, generation, to, .. } = *recall else { panic!("{recall:?}") };
        self.on(Event::Yield { session, inode, generation, mode: to, locks })
    }

    pub fn lock(&mut self, session: SessionId, owner: u64, range: (u64, u64), wait: Option<u64>) -> Vec<Command> {
        let ask = self.ask_id();
        let until = wait.map(|wait| Moment(self.now + ms(wait)));
        self.on(Event::Lock { ask, inode: FILE, space: Space::Posix, lock: lock(session, owner, range), until })
    }
}

pub fn lock(session: SessionId, owner: u64, (start, end): (u64, u64)) -> LockSpec {
    let range = ByteRange::new(start, end);
    LockSpec { owner: LockOwner { session, owner }, pid: 7, exclusive: true, range }
}

pub fn answers(commands: &[Command]) -> Vec<LockAnswer> {
    commands.iter().filter_map(|c| if let Command::Locked { answer, .. } = c { Some(*answer) } else { None }).collect()
}

pub fn grants(commands: &[Command]) -> Vec<(SessionId, Mode)> {
    let grant = |c: &Command| match c {
        Command::Grant { session, mode, .. } => Some((*session, *mode)),
        _ => None,
    };
    commands.iter().filter_map(grant).collect()
}

pub fn recalls(commands: &[Command]) -> Vec<Command> {
    commands.iter().filter(|c| matches!(c, Command::Recall { .. })).cloned().collect()
}

pub fn is_ready(commands: &[Command]) -> bool {
    commands.iter().any(|c| matches!(c, Command::Ready { .. }))
}
