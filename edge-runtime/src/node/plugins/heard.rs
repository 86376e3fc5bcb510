//! Events of the helper: which devices there are, answers to orders, and questions of clients.

use std::path::Path;

use sampan_plugins_control::{Asked, FromHelper, MAX_LINE, Resources, ToHelper};
use serde_json::Value;

use super::{ANSWERS, SOON, resources};
use crate::helper::client::Heard;
use crate::node::Node;
use crate::pod::event::{PodEvent, WAITING_FOR_DEVICE};
use crate::store::StoreError;
use crate::sys::files::replace;

impl Node {
    /// Processes an event of the helper.
    pub(in crate::node) fn take_plugins(&mut self, heard: Heard<FromHelper>) -> Result<(), StoreError> {
        let now = self.cx.mono();
        match heard {
            Heard::Up(connection) => {
                self.plugins.connection = Some(connection);
                self.launch.containers.plugins.begin();
            }
            Heard::Down(_) => {
                self.plugins.connection = None;
                self.plugins.answers.clear();
                self.launch.containers.plugins.down(now);
                self.orders_lost();
                self.volumes_lost();
                self.devices_changed();
            }
            Heard::Room => self.plugins.changed = true,
            Heard::Line(line) => self.plugins_said(line)?,
        }
        Ok(())
    }

    fn plugins_said(&mut self, line: FromHelper) -> Result<(), StoreError> {
        let (now, plugins) = (self.cx.mono(), &mut self.launch.containers.plugins);
        let is_news = match line {
            FromHelper::Devices { resource, all } => plugins.listed(&resource, all),
            FromHelper::Gone { resource } => plugins.gone(&resource, now),
            FromHelper::Told {} => {
                if !self.cx.recovery.is_under_way() {
                    plugins.kept.retain(|uid| self.cx.pods.contains(uid));
                }
                let is_news = plugins.told(now);
                self.volumes_told();
                is_news
            }
            FromHelper::Allocated { id, ids, pre_start, edits } => {
                self.allocated(id, ids, pre_start, edits)?;
                false
            }
            FromHelper::Prepared { id } => {
                self.prepared(id);
                false
            }
            FromHelper::Failed { id, why, gone } => {
                if !self.volume_failed(id, &why, gone) {
                    self.order_failed(id, &why, gone)?;
                }
                false
            }
            FromHelper::Mounted { id, path } => {
                self.volume_mounted(id, &path);
                false
            }
            FromHelper::Unmounted { id } => {
                self.volume_unmounted(id);
                false
            }
            FromHelper::Drivers { drivers } => {
                self.drivers_changed(drivers)?;
                false
            }
            FromHelper::Again { pod, volume } => {
                self.volume_again(&pod, &volume);
                false
            }
            FromHelper::AskResources { id, what } => {
                self.answer_resources(id, &what);
                false
            }
            FromHelper::Ready { refused } => {
                // All are named again with each change.
                let before = std::mem::replace(&mut self.plugins.refused, refused.clone());
                for why in refused.into_iter().filter(|why| !before.contains(why)) {
                    let message = format!("device plugins: {why}");
                    log::error!("{message}");
                    self.cx.node_event(true, "DevicePluginsNotServed", &message)?;
                }
                false
            }
            FromHelper::Counters { counters } => {
                counted(&self.cx.paths.plugins_counters(), &counters);
                false
            }
            FromHelper::Hello { .. } | FromHelper::Pong {} => false,
        };
        if is_news {
            self.devices_changed();
        }
        Ok(())
    }

    /// Has the Node object show devices that have come, gone or changed, and pods look again that wait for them or show their
    /// health.
    fn devices_changed(&mut self) {
        self.cx.look_again(self.cx.mono().after(SOON));
        self.plugins.changed = true;
        for uid in self.cx.pods.uids(|_| true) {
            let Some(entry) = self.cx.pods.get(&uid) else { continue };
            let mut containers = entry.record.containers.values();
            if containers.any(|container| container.state.shown().0 == WAITING_FOR_DEVICE) {
                self.cx.tell(&uid, PodEvent::DependencyChanged);
            } else if !entry.record.admitted || self.launch.containers.plugins.kept.has(&uid) {
                self.cx.pods.touch(&uid);
            }
        }
    }

    fn answer_resources(&mut self, id: u64, what: &Asked) {
        if self.plugins.answers.len() >= ANSWERS {
            return log::warn!("podresources: a question is left without an answer, because too many wait");
        }
        let containers = &self.launch.containers;
        let resources = resources::of(what, &self.cx.pods, &containers.plugins.kept, &containers.cpus);
        let mut answer = ToHelper::Resources { id, resources };
        if serde_json::to_vec(&answer).is_ok_and(|line| line.len() > MAX_LINE) {
            let resources = Resources::Refused(format!("the answer is longer than {MAX_LINE} bytes"));
            answer = ToHelper::Resources { id, resources };
        }
        self.plugins.answers.push_back(answer);
    }
}

/// Writes the counters for `edge-runtime status`, on a file system in memory.
fn counted(file: &Path, counters: &Value) {
    if let Err(error) = replace(file, counters.to_string().as_bytes(), false) {
        log::warn!("{}: {error}", file.display());
    }
}
