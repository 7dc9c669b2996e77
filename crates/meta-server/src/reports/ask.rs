//! The dialogue with one data server.

use super::at_rest;
use super::rows::Places;
use crate::server::MetaServer;
use braid_api::data::GetReport;
use braid_api::meta::ServerState;
use braid_api::{Code, Context, DataNode, DataPeers, Error, Result};
use braid_report::{Doubt, Expected, Strange, View, Wrong};
use braid_types::{ContainerId, ReportAsk, ReportPart, ServerId};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// A data server that has just started reads the header of each of its chunks for its first report.
const DEADLINE: Duration = Duration::from_secs(60);
/// Some 40 KiB of answer.
const SHELVES_AT_ONCE: usize = 64;
/// At most 128 KiB.
const CONTAINERS_AT_ONCE: usize = 64;

fn strange(server: ServerId) -> impl Fn(Strange) -> Error {
    move |_| Error::new(Code::BadMessage, format_args!("data server {server}"), "its report does not fit the question")
}

impl MetaServer {
    pub(super) async fn ask_report(&self, server: ServerId, ask: ReportAsk) -> Result<ReportPart> {
        let info = self.servers.info(server, self.env.clock.now());
        let Some(info) = info.filter(|info| info.state == ServerState::Up) else {
            return Err(Error::new(Code::Unreachable, format_args!("data server {server}"), "it is down"));
        };
        let cx = Context { deadline: DEADLINE, ..Context::default() };
        let message = GetReport { key: self.reports.mixer.key, ask };
        Ok(self.peers.node(&info).call(cx, message, Bytes::new()).await?.0)
    }

    /// The containers that differ, with how many chunks they have.
    pub(super) async fn differing(
        &self,
        server: ServerId,
        expected: &Expected,
        all: &ReportPart,
    ) -> Result<Vec<(ContainerId, u32)>> {
        let strange = strange(server);
        if expected.fits(all).map_err(&strange)? {
            return Ok(Vec::new());
        }
        let shelves = self.ask_report(server, expected.ask_shelves()).await?;
        let shelves = expected.shelves(&shelves).map_err(&strange)?;
        let mut differ = Vec::new();
        for some in shelves.chunks(SHELVES_AT_ONCE) {
            let part = self.ask_report(server, expected.ask_containers(some)).await?;
            differ.extend(expected.containers(some, &part).map_err(&strange)?);
        }
        Ok(differ)
    }

    /// What differs in these containers, as far as it may count. The view has their ids.
    pub(super) async fn doubts_of(
        &self,
        server: ServerId,
        containers: &[(ContainerId, u32)],
        view: &View,
        places: &Places,
    ) -> Result<BTreeSet<Doubt>> {
        let (strange, mixer) = (strange(server), self.reports.mixer);
        let mut doubts = BTreeSet::new();
        for some in containers.chunks(CONTAINERS_AT_ONCE) {
            let buckets = Expected::ask_buckets(some);
            let part = self.ask_report(server, buckets.clone()).await?;
            let ids = Expected::ask_ids(view, mixer, &buckets, &part).map_err(&strange)?;
            let part = self.ask_report(server, ids.clone()).await?;
            let found = Expected::compare(view, mixer, &ids, &part).map_err(&strange)?;
            for (wrong, (container, chunk)) in [(Wrong::Lost, found.lost), (Wrong::Extra, found.extra)]
                .into_iter()
                .flat_map(|(wrong, all)| all.into_iter().map(move |one| (wrong, one)))
            {
                let Some(epoch) = at_rest(self, places, container) else { continue };
                match places.get(container) {
                    // It was a member once, or it is to be: copies outside chains have their own care.
                    Some(place) if place.chain.len() > 1 && !place.chain.contains(&server) => {
                        self.chains.may_have_a_stray(server);
                    }
                    Some(place) if wrong == Wrong::Lost && !place.chain.contains(&server) => {}
                    None if wrong == Wrong::Lost => {}
                    _ => drop(doubts.insert(Doubt { wrong, container, chunk, epoch })),
                }
            }
        }
        Ok(doubts)
    }
}
