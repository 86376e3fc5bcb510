//! Keeps one task for each unfinished job, and this bridge a candidate for the lead while there are some.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::leader::{self, Leader};
use super::work::one;
use crate::bridge::requests::Requests;
use crate::bridge::shared::Shared;
use apimachinery::panics;

/// Keeps a task for each job until the bridge ends.
pub(super) async fn run(shared: Weak<Shared>, id: String) {
    let Some(mut stirred) = shared.upgrade().map(|shared| shared.jobs.stirred()) else { return };
    let leader = Arc::new(Leader::new(id));
    let mut tasks: HashMap<Box<str>, Task> = HashMap::new();
    let mut looked: Option<Instant> = None;
    loop {
        let Some(present) = shared.upgrade() else { return };
        let live = present.jobs.live();
        // Each task ends on its own, after it has reported how its job ended.
        tasks.retain(|_, task| !task.0.is_finished());
        let leads = !present.settings.replicated;
        for uid in &live {
            tasks.entry(uid.clone()).or_insert_with(|| {
                let (shared, leader, uid) = (Weak::clone(&shared), (!leads).then(|| Arc::clone(&leader)), uid.clone());
                let about = format!("job {uid}");
                let begin = move || one(Weak::clone(&shared), leader.clone(), uid.clone());
                Task(tokio::spawn(async move { panics::keep(&about, begin).await }))
            });
        }
        if !leads {
            let requests = Requests::new(present.clients.own().clone());
            if live.is_empty() {
                leader.release(&requests).await;
                looked = None;
            } else if looked.is_none_or(|looked| looked.elapsed() >= leader::LOOK) {
                let led = leader.leads();
                if let Err(error) = leader.look(&requests).await {
                    log::warn!("the Lease of jobs: {error}");
                }
                looked = Some(Instant::now());
                if leader.leads() != led {
                    present.jobs.stir();
                }
            }
        }
        drop(present);
        if live.is_empty() {
            let _ = stirred.changed().await;
        } else {
            let _ = timeout(leader::LOOK, stirred.changed()).await;
            // Lets other tasks run: changes meanwhile are processed together.
            sleep(Duration::from_millis(50)).await;
        }
        stirred.mark_unchanged();
    }
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
