//! Who makes snapshots, looks at them and lets go of them. What was asked for and not answered is gone on with, also by the next life.

use super::picture::{Picture, find};
use super::{Life, Shot, Snapshots, State, Taken, client_of};
use crate::failures::Invariant;
use crate::machine::Machine;
use crate::work::durable::fail;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::{Code, Error, Result};
use rand::RngExt;
use std::time::Duration;

const PAUSE_MS_MAX: u64 = 500;
const AGAIN: Duration = Duration::from_millis(100);
/// Of each client at once.
const SHOTS_MAX: usize = 4;
const WAITS_MS: [u64; 3] = [300, 2000, 10_000];

impl Snapshots {
    pub(super) async fn take_and_let_go(&self, mut life: Life) -> Result<()> {
        let me = life.process.machine;
        let begun: Vec<(String, State)> = self.own(me);
        for (text, state) in begun {
            match state {
                State::Asked => self.settle(&life, &text).await,
                State::Going => self.let_go(&life, &text).await?,
                State::Kept => {}
            }
        }
        let mut number = 0;
        while !life.process.cluster.is_calm() {
            life.pause(PAUSE_MS_MAX).await;
            let own = self.own(me);
            match life.random.random_range(0..10) {
                0..4 if own.len() < SHOTS_MAX => {
                    number += 1;
                    let text = format!("s{}-{}-{number}", client_of(me), life.number);
                    self.take(&life, &text).await;
                }
                4 | 5 if own.len() > 1 => {
                    let (text, _) = own[life.random.random_range(0..own.len())].clone();
                    self.let_go(&life, &text).await?;
                }
                _ => {
                    let all: Vec<String> = self.shots.lock().keys().cloned().collect();
                    if !all.is_empty() {
                        let text = &all[life.random.random_range(0..all.len())];
                        self.look(&life, text).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn own(&self, by: Machine) -> Vec<(String, State)> {
        let shots = self.shots.lock();
        shots.iter().filter(|(_, shot)| shot.by == by).map(|(text, shot)| (text.clone(), shot.state)).collect()
    }

    pub(super) async fn take(&self, life: &Life, text: &str) {
        let asked = self.history.lock().now();
        let taken = Taken { asked, known: asked };
        let shot = Shot { by: life.process.machine, state: State::Asked, taken, picture: None };
        self.shots.lock().insert(text.to_owned(), shot);
        self.settle(life, text).await;
    }

    /// Until it is there.
    async fn settle(&self, life: &Life, text: &str) {
        let mut tries = 0;
        loop {
            let asked = self.history.lock().now();
            life.process.note(format_args!("asks for snapshot {text}"));
            let wait_ms = WAITS_MS[tries % WAITS_MS.len()];
            tries += 1;
            let create = AdminQuery::CreateSnapshot { dir: life.dir, name: super::name(text), wait_ms };
            let first = match life.fs.admin(create).await {
                Ok(AdminAnswer::CreateSnapshot(status)) => {
                    life.count("snapshot made");
                    life.process.note(format_args!("snapshot {text} is {}", status.number));
                    Some(asked)
                }
                Err(error) if error.code == Code::Exists => {
                    life.count("snapshot found to be made");
                    None
                }
                Err(error) => {
                    life.count("snapshot not made, and asked for again");
                    life.process.note(format_args!("snapshot {text}: {error}"));
                    life.process.env.sleep(AGAIN).await;
                    continue;
                }
                Ok(_) => return life.fail(Invariant::OperationsSurviveFaults, "a strange answer"),
            };
            let known = self.history.lock().now();
            life.process.note(format_args!("there is snapshot {text}"));
            if let Some(shot) = self.shots.lock().get_mut(text) {
                shot.state = State::Kept;
                shot.taken = Taken { asked: first.unwrap_or(shot.taken.asked), known };
            }
            return;
        }
    }

    /// Until it is gone.
    pub(super) async fn let_go(&self, life: &Life, text: &str) -> Result<()> {
        match self.shots.lock().get_mut(text) {
            Some(shot) if shot.state != State::Asked => shot.state = State::Going,
            _ => return Ok(()),
        }
        life.process.note(format_args!("lets go of snapshot {text}"));
        loop {
            match life.fs.admin(AdminQuery::DropSnapshot { dir: life.dir, name: super::name(text) }).await {
                Ok(_) => break,
                Err(error) if error.code == Code::NotFound => break,
                Err(error) => {
                    life.process.note(format_args!("snapshot {text} stays: {error}"));
                    life.process.env.sleep(AGAIN).await;
                }
            }
        }
        life.count("snapshot let go of");
        life.process.note(format_args!("snapshot {text} is gone"));
        self.shots.lock().remove(text);
        if find(&life.fs, life.dir, &[".braid", "snapshots", text]).await?.is_some() {
            life.fail(Invariant::SnapshotsStay, format_args!("snapshot {text} was let go of and is there"));
        }
        Ok(())
    }

    fn is_kept(&self, text: &str) -> bool {
        self.shots.lock().get(text).is_some_and(|shot| shot.state == State::Kept)
    }

    /// Reads all of a snapshot. One that is let go of meanwhile may be anything.
    pub(super) async fn look(&self, life: &Life, text: &str) -> Result<()> {
        if !self.is_kept(text) {
            return Ok(());
        }
        life.process.note(format_args!("looks at snapshot {text}"));
        let read = self.read_all(life, text).await;
        if !self.is_kept(text) {
            life.count("snapshot let go of while it was read");
            return Ok(());
        }
        let picture = match read {
            Ok(Some(picture)) => picture,
            Ok(None) => {
                life.fail(Invariant::SnapshotsStay, format_args!("snapshot {text} is not there"));
                return Ok(());
            }
            Err(error) => {
                let text = format!("snapshot {text}: {error}");
                fail(&life.process, &Error::new(error.code, text, "it was to be read"));
                return Ok(());
            }
        };
        life.process.note(format_args!("has looked at snapshot {text}, {} files", picture.len()));
        let mut shots = self.shots.lock();
        let Some(shot) = shots.get_mut(text) else { return Ok(()) };
        match &shot.picture {
            Some(first) if *first == picture => life.count("snapshot read again"),
            Some(first) => {
                let differs = first.differs(&picture);
                life.fail(Invariant::SnapshotsStay, format_args!("snapshot {text} changes: {differs:?}"));
            }
            None => {
                life.count("snapshot read");
                let values = picture.values(Machine::CLIENTS.len(), self.clients_die);
                let wrong = match values {
                    Ok(values) => self.history.lock().wrong(shot.taken, &values),
                    Err(text) => Some(text),
                };
                if let Some(wrong) = wrong {
                    life.fail(Invariant::SnapshotsAreOfOneMoment, format_args!("snapshot {text}: {wrong}"));
                }
                shot.picture = Some(picture);
            }
        }
        Ok(())
    }

    async fn read_all(&self, life: &Life, text: &str) -> Result<Option<Picture>> {
        match find(&life.fs, life.dir, &[".braid", "snapshots", text]).await? {
            Some(attr) => Picture::of(&life.fs, attr.id).await.map(Some),
            None => Ok(None),
        }
    }
}
