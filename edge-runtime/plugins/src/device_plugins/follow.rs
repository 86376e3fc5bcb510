//! A registration, from its first list of devices until another registration replaces it. A plugin whose stream breaks
//! is called again for some minutes. The kubelet waits for another registration instead; but a plugin that has only lost
//! its connection does not know that it must register.

use std::rc::Rc;
use std::time::Duration;

use sampan_grpc::Code;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use crate::connected::{Connected, text};
use crate::messages::device_plugin::devices;
use crate::plugins::Registration;
use crate::shared::Shared;

/// Time for a plugin to serve after it has registered: some register first. The kubelet waits for the socket as well.
const SERVES: Duration = Duration::from_secs(3);
/// Between two attempts meanwhile.
const MOMENT: Duration = Duration::from_millis(50);
/// Until a plugin is called again; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(60);
/// A plugin that is away for longer must register again. The resource is on the node for as long: the kubelet's
/// `endpointStopGracePeriod`.
const FORGET: Duration = Duration::from_secs(300);
/// After so many lists at once a plugin waits between two.
const BURST: u32 = 50;
const PER_SECOND: u32 = 50;
const BREATH: Duration = Duration::from_millis(20);

/// Takes a registration: calls the plugin, and follows it from then on. Returns the number of the registration.
///
/// # Errors
/// The plugin cannot be called, or there are too many; the text goes to the plugin.
pub(crate) async fn register(shared: &Rc<Shared>, registration: Registration) -> Result<u64, String> {
    let Registration { resource, place, options, .. } = &registration;
    shared.plugins.borrow().admits(resource)?;
    let since = Instant::now();
    let connected = loop {
        match Connected::new(place, *options).await {
            Ok(connected) => break connected,
            Err(status) if status.code == Code::Unavailable && since.elapsed() < SERVES => sleep(MOMENT).await,
            Err(status) => {
                return Err(format!("failed to connect to the plugin of {resource}: {}", text(&status)));
            }
        }
    };
    // Others may have registered meanwhile.
    shared.plugins.borrow().admits(resource)?;
    log::info!("the plugin of {resource} has registered");
    let number = follow(shared, registration, Some(connected));
    shared.keep();
    Ok(number)
}

/// Follows a plugin in place of those before. Without a connection it is called first. Returns the number of the
/// registration.
pub(super) fn follow(shared: &Rc<Shared>, registration: Registration, first: Option<Connected>) -> u64 {
    let (own, mut registered) = (registration.resource.clone(), 0);
    let now = std::time::Instant::now();
    let replaced = shared.plugins.borrow_mut().register(registration.clone(), now, |number| {
        registered = number;
        let following = Following { shared: Rc::clone(shared), registration, number };
        // It does not run before this is done: all is on one thread.
        spawn_local(following.run(first)).abort_handle()
    });
    for (resource, task) in replaced {
        task.abort();
        if resource != own {
            log::info!("the plugin of {resource} has the resource {own} now");
            shared.accepts(&resource);
        }
    }
    shared.tell_news();
    registered
}

/// How lists of devices end.
#[derive(Debug)]
enum End {
    Gone(String),
    /// The plugin has failed, or has sent what cannot be used.
    Wrong(String),
}

struct Following {
    shared: Rc<Shared>,
    registration: Registration,
    number: u64,
}

impl Following {
    async fn run(self, first: Option<Connected>) {
        let Registration { resource, place, options, .. } = &self.registration;
        let mut pause = if first.is_some() { PAUSE } else { Duration::ZERO };
        let (mut connected, mut gone) = (first, Instant::now());
        loop {
            if let Some(connected) = connected.take() {
                let since = Instant::now();
                let end = self.list(resource, Rc::new(connected)).await;
                self.gone(resource, end);
                gone = Instant::now();
                if gone - since > PAUSE_AT_MOST {
                    pause = PAUSE;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).clamp(PAUSE, PAUSE_AT_MOST);
            match Connected::new(place, *options).await {
                Ok(again) => connected = Some(again),
                Err(_) if gone.elapsed() > FORGET => {
                    log::info!("the plugin of {resource} does not come back, and must register again");
                    // Ends this task.
                    return self.shared.unregister(resource, self.number);
                }
                Err(status) => log::debug!("{resource}: {}", text(&status)),
            }
        }
    }

    /// Takes lists of devices for as long as the plugin sends them. Returns how they end.
    async fn list(&self, resource: &str, connected: Rc<Connected>) -> End {
        let mut lists = connected.lists();
        self.shared.plugins.borrow_mut().connected(resource, self.number, connected);
        let mut rate = crate::rate::Rate::new(std::time::Instant::now(), PER_SECOND, BURST);
        loop {
            let message = match lists.next().await {
                Some(Ok(message)) => message,
                // Its process has ended, as at each update of a plugin.
                Some(Err(status)) if status.code == Code::Unavailable => return End::Gone(text(&status)),
                None => return End::Gone("it has ended ListAndWatch".to_owned()),
                Some(Err(status)) => return End::Wrong(text(&status)),
            };
            let devices = match devices(&message) {
                Ok(devices) => devices,
                Err(why) => return End::Wrong(format!("ListAndWatch: {why}")),
            };
            drop(message);
            let listed = self.shared.plugins.borrow_mut().listed(resource, self.number, devices);
            match listed {
                Ok(true) => self.shared.tell_news(),
                Ok(false) => {}
                Err(why) => return End::Wrong(why),
            }
            self.shared.accepts(resource);
            // Only the last list counts; one that comes faster waits at the plugin.
            while !rate.take(std::time::Instant::now()) {
                sleep(BREATH).await;
            }
        }
    }

    fn gone(&self, resource: &str, end: End) {
        self.shared.plugins.borrow_mut().gone(resource, self.number);
        match end {
            End::Gone(why) => log::info!("the plugin of {resource} has gone: {why}"),
            End::Wrong(why) => self.shared.refuses(resource, format!("its plugin cannot be used: {why}")),
        }
        self.shared.tell_news();
    }
}
