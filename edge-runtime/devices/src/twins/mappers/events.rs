//! What the core does with a mapper's requests and answers, and when the daemon has sent its rows and objects.

use sampan_devices_control::Row;
use sampan_grpc::Status;
use sampan_sys::gather::Gather;
use serde::Serialize;
use serde_json::Value;

use super::super::now::{MINUTE, Now};
use super::super::{Output, Twins};
use super::mapper::{Info, Mapper, Refusal};
use super::request::{Request, not_ready};
use super::state::{Event, Mappers};

impl Twins {
    /// A call of a mapper; an [`Output::Answer`] of this number follows. `pod`: uid of the caller's, or empty.
    pub fn asked(&mut self, now: Now, call: u64, request: Request, pod: String) {
        let Some((request, pod)) = self.admit(call, request, pod) else { return };
        let answer = match request {
            Request::Register(request) => return self.register(now, call, request, pod),
            Request::Twins(_) | Request::State(_) if !self.ready => Err(not_ready()),
            Request::Twins(request) => self.twins_reported(now, request),
            Request::State(request) => self.state_reported(now, request),
        };
        self.counters.refused += u64::from(answer.is_err());
        self.outputs.push(Output::Answer { call, answer: answer.map(|()| Vec::new()) });
    }

    /// How a call that was made of a mapper went.
    pub fn answered(&mut self, now: Now, call: u64, answer: Result<(), Status>) {
        let mut answer = Some(answer);
        let Mappers { all, rows, .. } = &mut self.mappers;
        let refused = all.iter_mut().find_map(|mapper| {
            let answer = if mapper.waits_for(call) { answer.take()? } else { return None };
            Some((mapper.info.name.clone(), mapper.answered(now.mono, call, answer, rows)?))
        });
        if let Some((name, Refusal { device, why })) = refused {
            let why: String = why.chars().take(512).collect();
            let message = format!("mapper {name:?} does not take it as it is: {why}");
            self.mapper_event(&device, Event { warning: true, reason: "MapperRefuses", message });
        }
    }

    /// The daemon has sent all rows.
    pub(in super::super) fn mappers_told(&mut self, now: Now) {
        if !self.mappers.are_on() {
            return;
        }
        if !std::mem::replace(&mut self.mappers.loaded, true) {
            self.mappers.load(now.mono);
            self.mappers.ask_at = now.mono + MINUTE;
            self.check_mappers();
            self.mappers.touched.extend(self.devices.keys().cloned());
        }
        let are = self.mappers.all.iter().flat_map(Mapper::rows).into_map();
        self.mappers.rows.differ(are);
    }

    /// Answers mappers that registered before the daemon had sent all objects.
    pub(in super::super) fn mappers_ready(&mut self, now: Now) {
        for (registration, info) in std::mem::take(&mut self.mappers.unanswered) {
            let answer = self.registered(now, &registration, info);
            self.outputs.push(Output::Answer { call: registration.call, answer });
        }
    }

    /// Rows of what mappers hold that have changed since the last call: to record before anything else is done, so that
    /// the next process finds them and passes them in as stored.
    pub fn unnoted(&mut self) -> Vec<Row> {
        self.mappers.rows.take_unnoted()
    }

    /// All that mappers hold, as it is noted.
    pub fn noted(&self) -> Vec<Row> {
        self.mappers.all.iter().flat_map(Mapper::rows).map(|(uid, record)| Row { uid, record }).collect()
    }

    /// All mappers as JSON: a list.
    ///
    /// # Errors
    /// DMI is off.
    pub fn mappers(&self) -> Result<Value, String> {
        if !self.mappers.are_on() {
            return Err("device-twin.dmi is not in config.yaml".to_owned());
        }
        let shown = self.mappers.all.iter().map(|mapper| Shown {
            info: &mapper.info,
            devices: mapper.held.len(),
            waiting: mapper.waiting(),
            answers: mapper.answers(),
        });
        serde_json::to_value(shown.collect::<Vec<_>>()).map_err(|error| error.to_string())
    }
}

/// A mapper as people see it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    info: &'a Info,
    /// Number of devices that it holds, and of those that wait for a call.
    devices: usize,
    waiting: usize,
    /// The last call reached it.
    answers: bool,
}
