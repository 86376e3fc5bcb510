//! Calls of mappers that are due, and events about devices that do not fit.

use sampan_devices_control::{FromHelper, Named};

use super::given::{Source, Wanted};
use super::mapper;
use super::state::{Event, Mappers};
use crate::twins::now::{MINUTE, Now};
use crate::twins::{Output, Twins, keep};

/// Time after which a replaced mapper that accepts no calls is given up, in milliseconds.
const GIVE_UP: u64 = 10 * MINUTE;

impl Twins {
    /// Makes the calls that are due.
    pub(in crate::twins) fn drive(&mut self, now: Now) {
        if !self.ready || !self.mappers.are_on() {
            return;
        }
        let pods = self.mappers.pods_to_ask(now.mono);
        if self.daemon {
            self.outputs.extend(pods.into_iter().map(|uid| Output::Tell(FromHelper::Pod { uid })));
        }
        let mut source = Source::new(&self.devices, &self.models);
        let (mut odd, mut calls) = (Vec::new(), Vec::new());
        let Mappers { all, rows, touched, call, .. } = &mut self.mappers;
        for id in std::mem::take(touched) {
            if all.is_empty() {
                break;
            }
            let wanted = source.wanted(&id);
            all.iter_mut().for_each(|mapper| mapper.look(&id, &wanted));
            let note = match wanted {
                Wanted::Is(given) if all.iter().any(|mapper| mapper.info.protocol == given.protocol) => {
                    given.notes.text()
                }
                _ => None,
            };
            odd.push((id, note));
        }
        for mapper in all.iter_mut() {
            if let Some(to_call) = mapper.next(now.mono, *call + 1, &mut source, rows) {
                *call += 1;
                let mapper::ToCall { path, message, odd: note } = to_call;
                odd.extend(note);
                let (mapper, socket) = (mapper.number, mapper.info.socket.clone());
                calls.push(Output::Call { mapper, socket, call: *call, path, message });
            }
        }
        all.retain(|mapper| {
            let over = mapper.info.replaced && (mapper.held.is_empty() || mapper.known + GIVE_UP <= now.mono);
            if over {
                mapper.rows().for_each(|(uid, _)| rows.forget(uid));
                calls.push(Output::Hangup { mapper: mapper.number });
            }
            !over
        });
        for (id, note) in odd {
            self.warn_of(&id, note);
        }
        if !self.mappers.rows.is_empty() {
            if self.daemon && self.mappers.rows.is_urgent() && !self.keep.is_spent(now.mono) {
                self.keep_rows(keep::Which::Mappers, now);
            } else {
                self.keep.soon_mappers(now.mono);
            }
        }
        self.outputs.append(&mut calls);
    }

    /// Once for each state of it.
    pub(super) fn warn_of(&mut self, id: &Named, note: Option<String>) {
        let odd = &mut self.mappers.odd;
        let Some(message) = note else { return drop(odd.remove(id)) };
        if odd.insert(id.clone(), message.clone()).as_ref() != Some(&message) {
            self.mapper_event(id, Event { warning: true, reason: "DeviceNotFitForMapper", message });
        }
    }

    pub(super) fn mapper_event(&mut self, id: &Named, event: Event) {
        let Some(device) = self.devices.get(id).filter(|_| self.daemon) else { return };
        let (namespace, name) = (id.namespace.to_string(), id.name.to_string());
        let Event { warning, reason, message } = event;
        let (uid, reason) = (device.uid.to_string(), reason.to_owned());
        self.outputs.push(Output::Tell(FromHelper::Event { namespace, name, uid, warning, reason, message }));
    }
}
