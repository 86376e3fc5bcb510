//! The helper for device plugins and CSI drivers, `edge-plugins`: when it runs, what it is asked, and what its messages
//! change. Which devices a container gets is decided in [`crate::launch::devices::plugins`].
//!
//! | file | owns |
//! |---|---|
//! | `heard` | what its messages change in the node |
//! | `order` | a container that waits, and what is ordered for it |
//! | `starts` | how containers wait, and go on |
//! | `resources` | what pods have, for clients of podresources |
//! | `status` | health of devices in the statuses of pods |
//! | `volumes` | volumes of CSI drivers that pods have, and orders to mount them |

mod heard;
mod order;
mod resources;
mod starts;
pub(super) mod status;
mod volumes;

use std::collections::VecDeque;
use std::time::Duration;

use async_executor::Task;
use sampan_plugins_control::{ToHelper, VERSION};

use self::order::Start;
use self::volumes::Volumes;
use super::context::Context;
use super::sources::News;
use crate::helper::client::{Helper, Teller};
use crate::helper::lines::line;
use crate::helper::programs::PLUGINS as PROGRAM;
use crate::pod::clock::Mono;
use crate::sys::files::private_dir;
use crate::sys::propagation::make_shared;

/// Longest wait of changes of devices for their report in the Node object: more changes may follow.
const SOON: Duration = Duration::from_millis(200);
/// Between two reports for changes of devices: a device may come and go all the time. The regular ones are as far apart.
const PAUSE: Duration = Duration::from_secs(10);

/// Answers to clients of podresources that wait for room; the helper asks for fewer at a time.
const ANSWERS: usize = 32;

#[derive(Default)]
pub(super) struct Plugins {
    running: Option<Running>,
    /// Connection that orders go to; `None` without a helper.
    connection: Option<u64>,
    /// Containers whose start waits for the helper.
    starts: Vec<Start>,
    /// Orders of allocations that have not been answered, and their resources. An order counts until its answer comes, also if
    /// its container has gone: the plugin is at work.
    ordered: Vec<(u64, String)>,
    answers: VecDeque<Vec<u8>>,
    /// What the helper cannot do, as it has said last.
    refused: Vec<String>,
    /// Number of the last order.
    last: u64,
    /// Starts may go on.
    changed: bool,
    pub(super) volumes: Volumes,
    /// When a change of devices is reported at once again.
    next_report: Option<Mono>,
}

struct Running {
    teller: Teller,
    _task: Task<()>,
}

impl Plugins {
    /// Starts the configured helper; ends a helper of an earlier daemon that is not configured any more.
    pub(super) fn start(&mut self, cx: &Context) {
        if !cx.config.plugins.is_on() {
            return PROGRAM.end(&cx.paths);
        }
        if cx.config.plugins.csi {
            self.volumes.load(&cx.paths);
            let root = &cx.config.plugins.root;
            // Before a driver's pod starts: its mounts would stay in its container, and other pods write into empty folders.
            if let Err(error) = private_dir(root).and_then(|()| make_shared(root)) {
                log::error!("volumes of CSI drivers may stay in the drivers' containers: {error}");
            }
        }
        let settings = cx.config.plugins.settings(&cx.config.devices);
        let greeting = ToHelper::Daemon { version: VERSION, node: cx.config.node_name.clone(), settings };
        let helper = Helper::new(&PROGRAM, &cx.paths, &greeting);
        let (teller, work) = helper.keep(cx.senders.news.clone(), |event| Ok(News::Plugins(event.read()?)));
        self.running = Some(Running { teller, _task: cx.tasks.spawn(work) });
    }

    fn has_room(&self) -> bool {
        self.connection.is_some() && self.running.as_ref().is_some_and(|running| running.teller.has_room())
    }

    /// Tells the helper; there must be room.
    fn tell(&self, message: &ToHelper) {
        self.tell_line(line(message));
    }

    fn tell_line(&self, line: Vec<u8>) {
        if let (Some(running), Some(connection)) = (&self.running, self.connection) {
            let told = running.teller.tell_line(connection, line);
            debug_assert!(told, "there was room");
        }
    }

    fn tell_answers(&mut self) {
        while self.has_room() {
            let Some(answer) = self.answers.pop_front() else { return };
            self.tell_line(answer);
        }
    }
}

#[cfg(test)]
mod tests;
