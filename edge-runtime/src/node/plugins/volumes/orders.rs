//! The life of an order of a volume: it is sent, answered, and perhaps repeated.

use std::rc::Rc;

use edge_protocol::message::Report;
use sampan_plugins_control::{MAX_LINE, ToHelper};
use serde_json::Value;

use super::super::SOON;
use super::{AGAIN, Order, What};
use crate::helper::lines::line;
use crate::node::Node;
use crate::node::network::connecting::Answer;
use crate::pod::event::PodEvent;
use crate::store::StoreError;
use crate::volume::VolumeError;

impl Node {
    /// Sends orders that are due.
    pub(in crate::node) fn volumes_step(&mut self) {
        if !self.plugins.volumes.told {
            return;
        }
        self.sweep_volumes();
        let now = self.cx.mono();
        while let Some(at) = self.plugins.volumes.next(now) {
            if !self.plugins.has_room() {
                return;
            }
            let id = self.plugins.next_id();
            let Some(order) = self.plugins.volumes.orders.get(at) else { return };
            match self.volume_order(order, id) {
                Ok(line) => {
                    self.plugins.tell_line(line);
                    if let Some(order) = self.plugins.volumes.orders.get_mut(at) {
                        order.id = Some(id);
                    }
                }
                Err(error) => self.volume_order_failed(at, error, false),
            }
        }
    }

    /// Tells the helper which pods there are: volumes of others are unmounted. Not while the store may not know all pods.
    fn sweep_volumes(&mut self) {
        if self.plugins.volumes.swept || self.cx.recovery.is_under_way() || !self.plugins.has_room() {
            return;
        }
        let pods = self.cx.pods.uids(|_| true);
        self.plugins.volumes.leave(&pods, self.cx.mono());
        self.plugins.tell(&ToHelper::Keep { pods });
        self.plugins.volumes.swept = true;
    }

    /// The line for the helper, made when it is sent: with the Secrets and tokens of that moment.
    fn volume_order(&self, order: &Order, id: u64) -> Result<Vec<u8>, VolumeError> {
        if matches!(order.what, What::Unmount | What::Leave) {
            return Ok(line(&ToHelper::Unmount { id, pod: order.uid.clone(), volume: order.folder.clone() }));
        }
        let Some(pod) = self.cx.pods.get(&order.uid).map(|entry| Rc::clone(&entry.pod)) else {
            return Err(order.failed("the pod is gone".to_owned()));
        };
        let mount = self.launch.sandboxes.csi_order(&pod, &order.folder, &self.cx.objects())?;
        let line = line(&ToHelper::Mount { id, mount: Box::new(mount) });
        if line.len() > MAX_LINE {
            // It would not be sent, and have no answer.
            return Err(order.failed("its attributes, Secrets and tokens are too long together".to_owned()));
        }
        Ok(line)
    }

    /// A volume is mounted. An answer to a forgotten order changes nothing.
    pub(in crate::node) fn volume_mounted(&mut self, id: u64, path: &str) {
        let Some(order) = self.plugins.volumes.take(id) else { return };
        self.plugins.volumes.kept.mounted(&order.uid, &order.folder, path);
        self.volume_done(&order);
    }

    /// A volume is unmounted.
    pub(in crate::node) fn volume_unmounted(&mut self, id: u64) {
        let Some(order) = self.plugins.volumes.take(id) else { return };
        self.plugins.volumes.kept.unmounted(&order.uid, &order.folder);
        self.cx.look_again(self.cx.mono().after(SOON));
        self.volume_done(&order);
    }

    /// Keeps what has changed, and lets the pod go on when its last order is done.
    fn volume_done(&mut self, order: &Order) {
        if self.plugins.volumes.has_more(order) {
            return;
        }
        let saved = self.plugins.volumes.kept.save(&self.cx.paths, &order.uid);
        let done = saved.map_err(|error| order.failed(error.to_string()));
        match (order.what, done) {
            (What::Repeat | What::Leave, Ok(())) => {}
            (What::Repeat | What::Leave, Err(error)) => log::warn!("pod {}: {error}", order.uid),
            (_, done) => self.connection_answered(&order.uid, Answer::Volumes(done)),
        }
    }

    /// An order has failed. Returns false if it is not an order of a volume. `is_gone`: its driver is away.
    pub(in crate::node) fn volume_failed(&mut self, id: u64, why: &str, is_gone: bool) -> bool {
        let Some(at) = self.plugins.volumes.sent_as(id) else { return false };
        if let Some(order) = self.plugins.volumes.orders.get(at) {
            let error = order.failed(why.to_owned());
            self.volume_order_failed(at, error, is_gone);
        }
        true
    }

    /// The step of the pod fails, and is repeated with its own back-off. The order of a running pod is repeated here, and
    /// that of a pod that is not there.
    fn volume_order_failed(&mut self, at: usize, error: VolumeError, is_gone: bool) {
        let now = self.cx.mono();
        let volumes = &mut self.plugins.volumes;
        let order = volumes.orders.swap_remove(at);
        if !matches!(order.what, What::Repeat | What::Leave) {
            volumes.orders.retain(|other| other.uid != order.uid);
            return self.connection_answered(&order.uid, Answer::Volumes(Err(error)));
        }
        log::warn!("pod {}: {error}", order.uid);
        let pause = AGAIN.0.saturating_mul(1 << order.failures.min(16)).min(AGAIN.1);
        let uid = order.uid.clone();
        volumes.orders.push(Order { id: None, due: now.after(pause), failures: order.failures + 1, ..order });
        if !is_gone {
            self.cx.warn_about_pod(&uid, error.reason(), error.to_string());
        }
    }

    /// The helper has said what it has. Another one does not know the volumes of running pods.
    pub(in crate::node) fn volumes_told(&mut self) {
        if !self.cx.config.plugins.csi {
            return;
        }
        let now = self.cx.mono();
        self.plugins.volumes.told = true;
        for uid in self.plugins.volumes.kept.uids() {
            if self.cx.pods.get(&uid).is_some_and(|entry| entry.sandbox_ready()) {
                for folder in self.plugins.volumes.kept.folders(&uid) {
                    self.plugins.volumes.repeat(&uid, &folder, now);
                }
            }
        }
    }

    /// A driver wants a volume of a pod published again.
    pub(in crate::node) fn volume_again(&mut self, uid: &str, folder: &str) {
        let runs = self.cx.pods.get(uid).is_some_and(|entry| entry.sandbox_ready());
        if runs && self.plugins.volumes.kept.folders(uid).iter().any(|own| own == folder) {
            let now = self.cx.mono();
            self.plugins.volumes.repeat(uid, folder, now);
        }
    }

    /// The helper has ended: its orders have no answers.
    pub(in crate::node) fn volumes_lost(&mut self) {
        (self.plugins.volumes.told, self.plugins.volumes.swept) = (false, false);
        for order in std::mem::take(&mut self.plugins.volumes.orders) {
            if !matches!(order.what, What::Repeat | What::Leave) {
                let error = order.failed("edge-plugins has ended; it is started again".to_owned());
                self.connection_answered(&order.uid, Answer::Volumes(Err(error)));
            }
        }
    }

    /// A driver has come or gone. The empty list of a helper that has just started is ignored: drivers are about to be found.
    pub(in crate::node) fn drivers_changed(&mut self, drivers: Value) -> Result<(), StoreError> {
        let volumes = &mut self.plugins.volumes;
        let is_first = !volumes.told && drivers.as_array().is_none_or(Vec::is_empty);
        if is_first || volumes.drivers.as_ref() == Some(&drivers) {
            return Ok(());
        }
        volumes.drivers = Some(drivers);
        let now = self.cx.mono();
        volumes.orders.iter_mut().for_each(|order| order.due = order.due.min(now));
        for uid in volumes.kept.uids() {
            self.cx.tell(&uid, PodEvent::DependencyChanged);
        }
        self.report_drivers()
    }

    /// Reports the drivers, also to a bridge that may not know them.
    pub(in crate::node) fn report_drivers(&mut self) -> Result<(), StoreError> {
        let Some(drivers) = self.plugins.volumes.drivers.clone() else { return Ok(()) };
        self.cx.report(Report::CsiNode { drivers })
    }
}
