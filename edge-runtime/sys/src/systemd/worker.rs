//! Requests to systemd, one after the other in their order, beside the loop: they may take long when the machine starts
//! or systemd reloads its units.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use smol::channel::{Receiver, Sender, bounded, unbounded};
use smol::future::or;

use super::manager::Manager;
use super::{BusError, Property};

/// Where systemd lets root in.
const SOCKET: &str = "/run/systemd/private";
/// Timeout of a unit's job, that of the OCI runtimes.
const PATIENCE: Duration = Duration::from_secs(30);
/// A systemd that executes itself again (`daemon-reexec`) drops its connections.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(300);

/// Comes when the work is done, or says why it is not.
pub type Pending = Receiver<Result<(), String>>;

/// A change of a unit. Each can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// The unit is there with these values.
    Start(String, Vec<Property>),
    /// The unit, which is there, gets these values.
    Set(String, Vec<Property>),
    /// The unit and all in it are gone.
    Stop(String),
}

impl Work {
    pub fn unit(&self) -> &str {
        match self {
            Self::Start(unit, _) | Self::Set(unit, _) | Self::Stop(unit) => unit,
        }
    }
}

struct Order {
    work: Work,
    done: Sender<Result<(), String>>,
}

/// The way to systemd.
#[derive(Debug)]
pub struct Units {
    orders: Sender<Order>,
    inbox: Receiver<Order>,
}

impl Default for Units {
    fn default() -> Self {
        let (orders, inbox) = unbounded();
        Self { orders, inbox }
    }
}

impl Units {
    /// Orders `work`, after everything that was ordered before. A failure is logged if the caller does not wait.
    pub fn order(&self, work: Work) -> Pending {
        let (done, pending) = bounded(1);
        // The receiver is in `self`.
        let _ = self.orders.try_send(Order { work, done });
        pending
    }

    /// Does `work` at once and waits for it: for the daemon's start and for `reset`, where nothing else runs.
    ///
    /// # Errors
    /// The first that fails.
    pub fn now(&self, work: &[Work]) -> Result<(), BusError> {
        smol::block_on(async {
            let mut manager = None;
            for one in work {
                perform(&mut manager, one, Path::new(SOCKET)).await?;
            }
            Ok(())
        })
    }

    /// Works on orders until the last sender is gone. `failed` receives the units whose work failed.
    pub fn worker<F: Fn(&str) + 'static>(&self, failed: F) -> impl Future<Output = ()> + use<F> + 'static {
        let inbox = self.inbox.clone();
        async move {
            while let Ok(first) = inbox.recv().await {
                let (mut manager, mut next) = (None, Some(first));
                while let Some(Order { work, done }) = next {
                    let result = perform(&mut manager, &work, Path::new(SOCKET)).await;
                    let result = result.map_err(|error| error.to_string());
                    if let Err(error) = &result {
                        log::warn!("unit {}: {error}", work.unit());
                        failed(work.unit());
                    }
                    // Some callers do not wait.
                    let _ = done.try_send(result);
                    next = inbox.try_recv().ok();
                }
            }
        }
    }
}

/// Uses the open connection, or a new one. Repeats a request after a lost connection.
async fn perform(manager: &mut Option<Manager>, work: &Work, socket: &Path) -> Result<(), BusError> {
    let mut tries = 1;
    loop {
        let late = async {
            smol::Timer::after(PATIENCE).await;
            Err(BusError::Late(PATIENCE.as_secs()))
        };
        let result = or(perform_once(manager, work, socket), late).await;
        if let Err(error) = &result {
            // A refusal is a whole answer; after anything else the connection's state is unknown.
            if !matches!(error, BusError::Refused { .. } | BusError::Job { .. }) {
                *manager = None;
            }
            let cut_off = matches!(error, BusError::Lost(_) | BusError::Connect { .. });
            if cut_off && tries < TRIES {
                tries += 1;
                smol::Timer::after(PAUSE).await;
                continue;
            }
        }
        return result;
    }
}

async fn perform_once(manager: &mut Option<Manager>, work: &Work, socket: &Path) -> Result<(), BusError> {
    let manager = match manager {
        Some(manager) => manager,
        None => manager.insert(Manager::connect(socket).await?),
    };
    match work {
        Work::Start(unit, properties) => manager.start(unit, properties).await,
        Work::Set(unit, properties) => manager.set(unit, properties).await,
        Work::Stop(unit) => manager.stop(unit).await,
    }
}
