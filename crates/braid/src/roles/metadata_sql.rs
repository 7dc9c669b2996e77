//! A metadata server over a database that others may serve as well: one of them leads, the others stand by
//! (docs/design/0020-several-metadata-servers.md), or serve beside it meanwhile (`metadata_together.rs`).

use super::anew::End;
use super::handover::Keeper;
use super::listen;
use super::metadata::{LAST_ANSWERS, move_chunks};
use super::metadata_pages::MetadataPages;
use super::metadata_together::Together;
use super::queries::QueryRunner;
use super::ready::ReadyFile;
use super::serving::Serving;
use super::signals::Asked;
use crate::config::Config;
use crate::{connect, http, roles};
use anyhow::{Context, Result, bail};
use braid_api::meta::MetaRequest;
use braid_api::{AnyPeers, Code, Retry};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, HeldEngine};
use braid_meta_engine_sql::{Fencing, SqlEngine, SqlOptions};
use braid_meta_namespace::ops::handover::CheckServed;
use braid_meta_server::{Backing, Lead, LeadLimits, Membership, MetaServer, Others, StartError};
use braid_types::ClusterId;
use braid_wire::{Identity, NamespaceService, Role, WirePeers, WireStats};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// `is_anew`: it has served or stood by before, so that a database which does not answer now is waited for.
pub async fn serve(config: Config, ready: ReadyFile, is_anew: bool) -> Result<End> {
    let env = Env::os();
    let settings = &config.metadata;
    let policy = settings.policy().map_err(anyhow::Error::msg)?;
    // Whoever has lost the lead without knowing it must not change anything, on any database.
    let options = SqlOptions { fencing: Fencing::Always, ..SqlOptions::from_url(&settings.database)? };
    if is_anew {
        // Whatever it was that it lost, it is not asked for again and again.
        env.sleep(PAUSE).await;
    }
    let engine = loop {
        match open(&options).await {
            Ok(engine) => break Arc::new(engine),
            Err(error) if is_anew && !has_gone(&error) => tracing::warn!("not yet: {error:#}"),
            Err(error) => return Err(error),
        }
        env.sleep(PAUSE).await;
    };
    let rows = AnyEngine::new(engine.clone());
    let endpoint = connect::endpoint(&env, Role::Metadata);
    let peers = WirePeers::new(&endpoint);
    let mut asked = Asked::listen()?;
    let together = Together::begin(&env, &endpoint, &config, &options, &rows).await?;
    ready.write_stands_by()?;
    let lead = tokio::select! {
        lead = Lead::win(env.clone(), rows.clone(), LeadLimits::default()) => match lead {
            Ok(lead) => lead,
            Err(error) => return may_pass(&rows, error.into(), true).await,
        },
        never = serve_beside(together.as_ref()) => match never {},
        () = asked.wait() => {
            ready.withdraw();
            if let Some(together) = &together {
                together.stop_beside().await;
            }
            return Ok(End::Asked);
        }
    };
    let (membership, own) = match &together {
        Some(together) => match together.leads(&lead).await {
            Ok((membership, own)) => (Some(membership), own),
            Err(error) => {
                lead.release(&rows).await;
                return may_pass(&rows, error, true).await;
            }
        },
        None => (None, rows.clone()),
    };
    let mut fresh = ClusterId::default();
    env.random.fill(&mut fresh.0);
    let queries = Arc::new(QueryRunner::new(&env, &rows));
    let held = HeldEngine::over(own.clone());
    let keeper = Keeper::new(&env, held.clone(), own);
    let backing = Backing {
        copies: None,
        lead: Some(lead.clone()),
        row_copies_below: settings.database_copies,
        queries: Some(queries.clone()),
        handovers: Some(keeper.clone()),
        others: membership.clone().map(|membership| membership as Arc<dyn Others>),
    };
    let start = MetaServer::start_with(
        env.clone(),
        held.engine(),
        AnyPeers::new(peers),
        settings.times(),
        fresh,
        policy,
        backing,
    );
    let server = tokio::select! {
        server = start => match server {
            Ok(server) => server,
            Err(error) => {
                lead.release(&rows).await;
                // What a database did not answer in time is internal too.
                let passes = matches!(&error, StartError::Namespace(error)
                    if error.code.retry() != Retry::No || error.code == Code::Internal);
                return may_pass(&rows, error.into(), passes).await;
            }
        },
        () = lead.ended() => return Ok(End::Anew(LOST.to_owned())),
        () = asked.wait() => {
            lead.release(&rows).await;
            return Ok(End::Asked);
        }
    };
    endpoint.set_identity(Identity { cluster: server.cluster(), ..endpoint.identity() });
    if let (Some(together), Some(membership)) = (&together, &membership) {
        together.open(membership, &server);
    }
    // Only who leads listens here: whoever looks for the metadata server goes on to the next address.
    let addresses = roles::addresses(&settings.listen)?;
    let listeners = listen(&env, &addresses).await?;
    let local: Vec<String> = listeners.iter().map(|l| l.local().to_string()).collect();
    let stats = WireStats::new(MetaRequest::NAMES);
    let serving = Serving::begin(&endpoint, listeners, NamespaceService(server.clone()), &stats);
    let pages = MetadataPages { server: server.clone(), stats: stats.clone(), copies: None };
    ready.write_pages(http::serve("metadata.http", &settings.http, Arc::new(pages)).await?)?;
    let moves = move_chunks(&env, &endpoint, &server);
    tracing::info!(cluster = %server.cluster(), "metadata server serves at {}", local.join(", "));
    ready.write(&local.join(" "))?;
    tokio::select! {
        () = asked.wait() => {}
        // It knows nothing any more that holds: begun anew, it stands by.
        () = lead.ended() => return Ok(End::Anew(LOST.to_owned())),
        () = ended(membership.as_ref()) => return Ok(End::Anew(LOST.to_owned())),
        to = keeper.gone() => {
            ready.withdraw();
            // Whoever moved them gets its answer; others wait for more than this.
            queries.stop().await;
            let _ = env.timeout(LAST_ANSWERS, serving.end()).await;
            lead.release(&rows).await;
            bail!("the metadata in the database is served from {to} now");
        }
    }
    ready.withdraw();
    tracing::info!("metadata server stops");
    moves.abort();
    queries.stop().await;
    serving.end().await;
    if let (Some(together), Some(membership)) = (&together, &membership) {
        together.stop_listening().await;
        // Whoever leads next knows from the row that this one does not any more.
        membership.ends();
    }
    server.close().await?;
    lead.release(&rows).await;
    Ok(End::Asked)
}

const LOST: &str = "this metadata server does not lead any more: the database has not confirmed it in time, or another one has taken over";

/// Before the database is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Before it stands for the lead it is looked whether these rows are served here: one that starts again and again over others must not disturb
/// who moves them.
async fn open(options: &SqlOptions) -> Result<SqlEngine> {
    let engine = SqlEngine::open(options.clone()).await.context("cannot open the metadata in the database")?;
    engine.read(0, CheckServed).await.map_err(braid_api::Error::from)?;
    Ok(engine)
}

/// The rows are served elsewhere, or are not whole.
fn has_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<braid_api::Error>().is_some_and(|error| error.code == Code::NotServing)
}

/// What went wrong between standing by and serving: with a database that does not answer at that moment, or another that was first, it passes.
/// Anything else is for who runs this server to know.
async fn may_pass(rows: &AnyEngine, error: anyhow::Error, passes: bool) -> Result<End> {
    match rows.read(0, CheckServed).await.map_err(braid_api::Error::from).map_err(anyhow::Error::from) {
        Err(gone) if has_gone(&gone) => Err(gone),
        Ok(()) if !passes => Err(error),
        _ => Ok(End::Anew(format!("{error:#}"))),
    }
}

/// Never returns.
async fn serve_beside(together: Option<&Together>) -> Infallible {
    match together {
        Some(together) => together.serve_beside().await,
        None => std::future::pending().await,
    }
}

/// Returns when it is no member any more; never, where it serves alone.
async fn ended(membership: Option<&Arc<Membership>>) {
    match membership {
        Some(membership) => membership.ended().await,
        None => std::future::pending().await,
    }
}
