//! Events of the helper: which devices there are, answers to orders, and questions of clients.

use std::path::Path;

use sampan_plugins_control::{Asked, FromHelper, MAX_LINE, Resources, ToHelper};
use serde_json::Value;

use super::{ANSWERS, PAUSE, SOON, resources};
use crate::helper::client::Heard;
use crate::helper::lines::line;
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
                self.devices_changed(None);
            }
            Heard::Room => self.plugins.changed = true,
            Heard::Line(line) => self.plugins_said(line)?,
        }
        Ok(())
    }

    fn plugins_said(&mut self, line: FromHelper) -> Result<(), StoreError> {
        let (now, plugins) = (self.cx.mono(), &mut self.launch.containers.plugins);
        match line {
            FromHelper::Devices { resource, all } => {
                if plugins.listed(&resource, all) {
                    self.devices_changed(Some(&resource));
                }
            }
            FromHelper::Gone { resource } => {
                if plugins.gone(&resource, now) {
                    self.devices_changed(Some(&resource));
                }
            }
            FromHelper::Told {} => {
                let is_news = plugins.told(now);
                if !self.cx.recovery.is_under_way() {
                    self.forget_allocations();
                }
                if is_news {
                    self.devices_changed(None);
                }
                self.volumes_told();
            }
            FromHelper::Allocated { id, ids, pre_start, edits } => {
                self.allocated(id, ids, pre_start, edits)?;
            }
            FromHelper::Prepared { id } => self.prepared(id),
            FromHelper::Failed { id, why, gone } => {
                if !self.volume_failed(id, &why, gone) {
                    self.order_failed(id, &why, gone)?;
                }
            }
            FromHelper::Mounted { id, path } => self.volume_mounted(id, &path),
            FromHelper::Unmounted { id } => self.volume_unmounted(id),
            FromHelper::Drivers { drivers } => self.drivers_changed(drivers)?,
            FromHelper::Again { pod, volume } => self.volume_again(&pod, &volume),
            FromHelper::AskResources { id, what } => self.answer_resources(id, &what),
            FromHelper::Ready { refused } => {
                // All are named again with each change.
                let before = std::mem::replace(&mut self.plugins.refused, refused.clone());
                for why in refused.into_iter().filter(|why| !before.contains(why)) {
                    let message = format!("device plugins: {why}");
                    log::error!("{message}");
                    self.cx.node_event(true, "DevicePluginsNotServed", &message)?;
                }
            }
            FromHelper::Counters { counters } => counted(&self.cx.paths.plugins_counters(), &counters),
            FromHelper::Hello { .. } | FromHelper::Pong {} => {}
        }
        Ok(())
    }

    /// Forgets what pods had that are gone. A process of one that hangs in the kernel still has it.
    pub(in crate::node) fn forget_allocations(&mut self) {
        let (pods, teardown) = (&self.cx.pods, &self.launch.sandboxes.teardown);
        let stays = |uid: &str| pods.contains(uid) || teardown.has_cgroup_of(uid);
        self.launch.containers.plugins.kept.retain(&stays);
    }

    /// Has the Node object show devices that have come, gone or changed, of this resource or of all, and pods look again that
    /// wait for them or show their health. The first of many changes is reported soon, and the others with the regular
    /// report.
    fn devices_changed(&mut self, resource: Option<&str>) {
        let now = self.cx.mono();
        if self.plugins.next_report.is_none_or(|at| at <= now) {
            self.plugins.next_report = Some(now.after(PAUSE));
            self.cx.look_again(now.after(SOON));
        }
        self.plugins.changed = true;
        self.launch.containers.plugins.save_names(&self.cx.paths);
        for uid in self.cx.pods.uids(|_| true) {
            let (Some(entry), plugins) = (self.cx.pods.get(&uid), &self.launch.containers.plugins) else { continue };
            if !plugins.concerns(&entry.pod, resource) {
                continue;
            }
            let mut containers = entry.record.containers.values();
            if containers.any(|container| container.state.shown().0 == WAITING_FOR_DEVICE) {
                self.cx.tell(&uid, PodEvent::DependencyChanged);
            } else if !entry.record.admitted || plugins.kept.has(&uid) {
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
        let mut answer = line(&ToHelper::Resources { id, resources });
        if answer.len() > MAX_LINE {
            let resources = Resources::Refused(format!("the answer is longer than {MAX_LINE} bytes"));
            answer = line(&ToHelper::Resources { id, resources });
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
