//! Keeps an ImageListPullJob for each workload and namespace with the label `larder.dev/warm: "true"`, off unless
//! `--warm-workloads` is given.
//!
//! Stands beside the core, and works through the API alone: the jobs are like those that people write, and the engine does not
//! know of workloads. `watches` shows what changes, `state` holds what is known and says which owners to look at, `act` writes.
//! Which job an owner should have is decided in [`larder_planner::workload::warm`].

mod act;
mod state;
mod watches;

use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::act::Writer;
use self::state::State;
use self::watches::Watches;
use crate::lease::Leadership;

/// Events of watches that wait to be taken in.
const QUEUE: usize = 256;

/// What failed is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

/// Everything is looked at again this often: pull secrets of ServiceAccounts are not watched.
const RESYNC: Duration = Duration::from_mins(5);

/// Works while this replica may write, until `stop`. After a restore of etcd everything is listed again, because a watch that
/// goes on does not show what the restore changed.
pub(crate) async fn run(
    client: Client,
    mut permit: watch::Receiver<Leadership>,
    mut restores: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    loop {
        let term = term(&permit.borrow_and_update());
        let writer = Writer::new(client.clone(), permit.clone());
        // A write that is under way ends before this returns.
        let work = async {
            match term {
                Some(_) => follow(&client, &writer, &stop).await,
                None => stop.cancelled().await,
            }
        };
        tokio::select! {
            () = work => return,
            over = permit.wait_for(|now| self::term(now) != term) => if over.is_err() { return },
            Ok(()) = restores.changed() => {}
        }
    }
}

/// Each time of leading has a number; None if another replica leads.
fn term(leadership: &Leadership) -> Option<u64> {
    match leadership {
        Leadership::Leader { term, .. } => Some(*term),
        Leadership::Follower => None,
    }
}

/// Follows what there is until `stop`. What it started ends with it.
async fn follow(client: &Client, writer: &Writer, stop: &CancellationToken) {
    info!("following labelled workloads");
    let (sender, mut events) = mpsc::channel(QUEUE);
    let mut watches = Watches::start(client.clone(), sender);
    let mut state = State::default();
    let mut resync = Instant::now() + RESYNC;
    let mut retry: Option<Instant> = None;
    while !stop.is_cancelled() {
        let next = retry.map_or(resync, |retry| retry.min(resync));
        tokio::select! {
            event = events.recv() => match event {
                Some((scope, event)) => state.observe(&scope, event),
                None => return,
            },
            () = sleep_until(next) => {
                if retry.take_if(|retry| *retry <= next).is_some() {
                    state.look_at_failed();
                }
                if resync <= next {
                    resync = Instant::now() + RESYNC;
                    state.look_at_all();
                }
            }
            () = stop.cancelled() => return,
        }
        while let Ok((scope, event)) = events.try_recv() {
            state.observe(&scope, event);
        }
        watches.follow_namespaces(&state.namespaces());
        state.forget_all_but(watches.scopes());
        while let Some(key) = state.next(watches.scopes()).filter(|_| !stop.is_cancelled()) {
            if let Err(error) = writer.bring_about(&key, state.situation(&key)).await {
                // One line for all that fail at the same time: a missing right concerns every job.
                if retry.is_none() {
                    warn!(owner = %key, error, "the job of a labelled workload could not be written; trying again");
                } else {
                    debug!(owner = %key, error, "the job of a labelled workload could not be written");
                }
                retry.get_or_insert_with(|| Instant::now() + RETRY);
                state.try_later(key);
            }
        }
    }
}
