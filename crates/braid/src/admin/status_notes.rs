//! What `braid admin status` says that is good to know and no problem.

use super::status::{Seen, is_in_database, lacking_at};
use crate::output::{self, millis};
use braid_api::admin::Status;
use braid_api::meta::Duty;

/// A copy is some groups behind whenever there is much to do.
const LAG_GROUPS: u64 = 100;

pub fn notes(status: &Status, servers: &[Seen]) -> Vec<String> {
    let mut notes = super::status_parts::notes(&status.reports);
    let lacking = lacking_at(servers);
    notes.extend(lacking.note());
    if let Some(taken) = status.restored {
        notes.push(format!(
            "the metadata comes from a backup of {}: nothing that it does not know is deleted until you say braid admin metadata confirm",
            output::time(taken)
        ));
    }
    let members = status.copies.iter().filter(|copy| copy.is_member);
    let (have, wanted) = (members.clone().count(), status.copies_wanted as usize);
    match have {
        _ if is_in_database(status) => {}
        _ if wanted == 0 => {
            notes.push("the metadata has one copy: back up its directory, or set metadata.copies".to_owned());
        }
        0 if wanted > 1 && servers.len() < 2 => {
            notes.push("the metadata has one copy: others begin with a second data server".to_owned());
        }
        _ if have < wanted.min(servers.len()) => notes.push(format!(
            "{have} of {wanted} copies of the metadata are on data servers: others are on their way or missing"
        )),
        _ if have < wanted => notes
            .push(format!("{have} of {wanted} copies of the metadata are on data servers: there are no more servers")),
        _ => {}
    }
    if status.metadata_copies == 1 && status.chains.containers > 0 {
        notes.push(
            "small files of directories with several copies go to chunks now; what lies beside rows already has the metadata's \
             one copy, until it is written again"
                .to_owned(),
        );
    }
    for copy in members.filter(|copy| copy.silent_ms > 1500 || copy.lag.is_none_or(|lag| lag > LAG_GROUPS)) {
        let lag = copy.lag.map_or("does not follow".to_owned(), |lag| format!("lags by {lag} groups"));
        let (server, silent) = (copy.server, millis(copy.silent_ms));
        notes.push(format!("the copy of the metadata at data server {server} {lag}, heard of {silent} ago"));
    }
    if status.chains.with_strays > 0 {
        notes.push(format!(
            "{} data servers may have copies that nobody needs any more: they are deleted when the others are whole",
            status.chains.with_strays
        ));
    }
    if status.chains.too_near > 0 {
        notes.push(format!(
            "{} of {} containers have copies nearer to each other than they need to be: there are more racks, hosts or disks",
            status.chains.too_near, status.chains.containers
        ));
    }
    for Seen { info, .. } in servers.iter().filter(|seen| seen.info.duty != Duty::Serves) {
        let (id, duty) = (info.id, info.duty);
        notes.push(format!(
            "data server {id} gets nothing new, {duty}: braid admin drain {id} --plan says what is left"
        ));
    }
    let mended = lacking.mended;
    if mended > 0 {
        notes.push(format!("{mended} damaged blocks were mended from other copies since the servers' start"));
    }
    notes
}
