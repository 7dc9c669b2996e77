//! What has been heard is told on, one thing after the other.

use super::{Holding, Membership, PAUSE};
use braid_members::Roster;
use braid_types::{MembershipEpoch, SlotSet};

enum News {
    Follows { roster: Roster, fence: u64, stays: SlotSet },
    Gains { epoch: MembershipEpoch, slots: SlotSet },
}

impl Membership {
    pub(super) async fn keep_telling(&self, holding: &dyn Holding) {
        loop {
            let told = match self.news() {
                None => {
                    self.to_tell.notified().await;
                    continue;
                }
                Some(News::Follows { roster, fence, stays }) => {
                    let followed = holding.follows(&roster, fence, &stays).await;
                    if followed.is_ok() {
                        self.state.lock().followed = Some(roster.epoch);
                        let (epoch, members) = (roster.epoch.0, roster.members.len());
                        tracing::info!(epoch, members, "this metadata server follows a roster");
                    }
                    // The leader hears that it follows; or there is a newer one.
                    self.is_outdated();
                    followed
                }
                Some(News::Gains { epoch, slots }) => {
                    let gained = holding.gains(epoch, slots.clone()).await;
                    if gained.is_ok() {
                        let mut state = self.state.lock();
                        let lost = state.lost.clone();
                        state.taken.extend(&slots.without(&lost));
                        tracing::info!(epoch = epoch.0, slots = slots.len(), "this metadata server answers for more");
                    }
                    gained
                }
            };
            if let Err(error) = told {
                tracing::warn!("what other metadata servers hold is not settled here: {error}");
                self.env.sleep(PAUSE).await;
            }
        }
    }

    fn news(&self) -> Option<News> {
        let mut state = self.state();
        let roster = state.member.roster()?;
        let epoch = roster.epoch;
        if state.followed != Some(epoch) {
            let roster = roster.clone();
            // Whoever did follow the one in between, a server or a client, takes for moved what stayed there.
            if state.followed.is_some_and(|followed| followed.next() != epoch) {
                state.taken = SlotSet::none();
            }
            return Some(News::Follows { roster, fence: state.fence, stays: state.taken.clone() });
        }
        let slots = state.member.held().without(&state.taken);
        state.lost = SlotSet::none();
        (!slots.is_empty()).then_some(News::Gains { epoch, slots })
    }
}
