//! The next call of a mapper, and its content.

use sampan_devices_control::Named;
use sampan_dmi::{Message, RemoveDeviceRequest, append, mapper as method};

use super::{Flying, Mapper, ToCall, What};
use crate::twins::mappers::given::{Given, Source, Wanted};
use crate::twins::mappers::rows::{self, Rows};

impl Mapper {
    /// The next call, of this number.
    pub(in crate::twins::mappers) fn next(
        &mut self,
        now: u64,
        call: u64,
        source: &mut Source<'_>,
        rows: &mut Rows,
    ) -> Option<ToCall> {
        if self.flying.is_some() || self.down.at > now {
            return None;
        }
        while let Some(device) = self.queue.iter().find(|(_, retry)| retry.at <= now).map(|(id, _)| id.clone()) {
            let wanted = if self.info.replaced { Wanted::Gone } else { source.wanted(&device) };
            let given = match wanted {
                Wanted::Is(given) if self.is_of(&given) => Some(given),
                Wanted::Is(_) | Wanted::Gone => None,
                Wanted::Later => {
                    self.queue.remove(&device);
                    continue;
                }
            };
            let (what, to_call) = match (self.held.get(&device), given) {
                (None, None) => {
                    self.queue.remove(&device);
                    self.refused.remove(&device);
                    continue;
                }
                (Some(Some(held)), Some(given)) if *held == given.hash => {
                    self.queue.remove(&device);
                    continue;
                }
                (Some(_), None) => {
                    // KubeEdge's framework crashes on a second one. After a crash of this process its successor must
                    // know of the attempt.
                    if self.held.insert(device.clone(), None) != Some(None) {
                        rows.put_at_once(rows::of_device(self.number, &device), rows::record(None));
                    }
                    (What::Remove, remove(&device))
                }
                (held, Some(given)) => {
                    let (what, to_call) = self.give(held.is_some(), &given);
                    (what, ToCall { odd: Some((device.clone(), given.notes.text())), ..to_call })
                }
            };
            self.flying = Some(Flying { call, device, what });
            return Some(to_call);
        }
        None
    }

    /// The model first, if it does not hold it as it is.
    fn give(&self, is_held: bool, given: &Given) -> (What, ToCall) {
        let mut message = Vec::new();
        let model = &given.model;
        match self.models.get(&model.id) {
            Some(hash) if *hash == model.hash => {
                let path = if is_held { method::UPDATE_DEVICE } else { method::REGISTER_DEVICE };
                append(&mut message, 1, &given.device);
                (What::Device(given.hash), ToCall { path, message, odd: None })
            }
            old => {
                let path = if old.is_some() { method::UPDATE_DEVICE_MODEL } else { method::CREATE_DEVICE_MODEL };
                append(&mut message, 1, &model.message);
                (What::Model(model.id.clone(), model.hash), ToCall { path, message, odd: None })
            }
        }
    }
}

fn remove(Named { namespace, name }: &Named) -> ToCall {
    let request = RemoveDeviceRequest { device_name: name.to_string(), device_namespace: namespace.to_string() };
    ToCall { path: method::REMOVE_DEVICE, message: request.encode_to_vec(), odd: None }
}
