//! Messages of the daemon and of clients, and their answers.

use std::time::Duration;

use sampan_devices_control::{FromHelper, MAX_LINE, Named, Question, Settings, ToHelper, VERSION};
use serde_json::Value;
use tokio::time::Instant;

use super::works::Works;
use super::{CALM, Helper};
use crate::dmi::Dmi;
use crate::rules;
use crate::server::{Heard, Role, Said};

/// Between two answers to a question that is answered with each change.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

impl Helper {
    pub(super) fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Came(id, connection) => self.callers.came(id, connection),
            Heard::Went(id) => {
                if self.callers.cut(id) {
                    self.daemon_went();
                }
            }
            Heard::Said(id, said) => match (self.callers.role(id), said) {
                (None, _) => {}
                (Some(_), Said::OtherDaemon) => self.other_daemon(id),
                (Some(role), Said::Line(line)) => self.said(id, role, *line),
            },
        }
    }

    pub(super) fn daemon_went(&mut self) {
        let now = self.now();
        if let Some(works) = &mut self.works {
            works.daemon_went(now);
        }
    }

    fn said(&mut self, id: u64, role: Role, line: ToHelper) {
        // Come with each batch, or for nothing, and need little.
        if !matches!(line, ToHelper::Ack { .. } | ToHelper::Ping {}) {
            self.trim_at = Some(Instant::now() + CALM);
        }
        match (role, line) {
            (Role::Unknown, ToHelper::Daemon { version, node, settings }) => match Settings::read(&settings) {
                Ok(read) => self.daemon(id, version, node, read.settings),
                Err(why) => {
                    log::error!("config.yaml, {why}: no device is served until that is mended");
                    self.callers.cut(id);
                }
            },
            (Role::Unknown, ToHelper::Client {}) => self.callers.is_client(id),
            (_, ToHelper::End {}) => self.ending = true,
            (Role::Client, ToHelper::Ask { id: number, question }) => self.asked(id, number, question),
            (Role::Daemon, ToHelper::Call { id, call }) => self.carry_out(id, call),
            (Role::Daemon, ToHelper::Ping {}) => {
                if !self.callers.tell_daemon(&FromHelper::Pong {}) {
                    self.daemon_went();
                }
            }
            (Role::Daemon, line) => {
                let now = self.now();
                if let Some(works) = &mut self.works {
                    let first = matches!(line, ToHelper::Told {}) && !works.twins.is_ready() && self.dmi.is_some();
                    if first {
                        // Newer than what the daemon has.
                        self.journal.take_left().into_iter().for_each(|(uid, record)| works.twins.kept(uid, record));
                    }
                    let changed = works.tell(now, line);
                    if first {
                        self.journal.begin(&works.twins.noted());
                    }
                    if changed {
                        self.subscribe();
                    }
                }
                self.connect();
            }
            (role, line) => {
                log::warn!("a caller ({role:?}) says what it may not: {}", kind_of(&line));
                self.callers.cut(id);
            }
        }
    }

    fn daemon(&mut self, id: u64, version: u32, node: String, settings: Settings) {
        let same = |works: &Works| version == VERSION && works.node == node && works.settings == settings;
        if version != VERSION || self.works.as_ref().is_some_and(|works| !same(works)) {
            return self.other_daemon(id);
        }
        self.callers.is_daemon(id);
        self.callers.tell(id, &FromHelper::Hello { version: VERSION });
        let now = self.now();
        let works = self.works.get_or_insert_with(|| Works::new(now, node, settings));
        works.daemon_came(now);
        if let (None, Some(settings)) = (&self.dmi, &works.settings.dmi) {
            let (calls, answered) = self.mappers.clone();
            self.dmi = Some(Dmi::start(settings.folder.clone(), calls, answered));
        }
    }

    /// Handles a daemon that needs another helper: sends it what to store, and lets it start one.
    fn other_daemon(&mut self, id: u64) {
        log::info!("the daemon is of another version, or has other settings: another helper is needed");
        self.callers.is_daemon(id);
        self.callers.tell(id, &FromHelper::Hello { version: VERSION });
        let now = self.now();
        if let Some(works) = &mut self.works {
            works.daemon_came(now);
        }
        self.ending = true;
    }

    /// To the broker and for clients, when there are devices to speak of.
    pub(super) fn connect(&mut self) {
        let Some(works) = self.works.as_mut().filter(|works| works.twins.is_ready()) else { return };
        if self.outlets.open(&works.settings, &works.node, &self.news, &self.filters) {
            works.twins.listens();
        }
        let Some(servicebus) = &works.settings.servicebus else { return };
        // Checked when it was read.
        if let (Ok(address), Some(requests)) = (servicebus.checked(), self.requests.take()) {
            drop(tokio::task::spawn_local(rules::serve(address, requests)));
        }
    }

    pub(super) fn asked(&mut self, id: u64, number: u64, question: Question) {
        let now = self.now();
        let answer = match (&mut self.works, question) {
            (None, _) => Err("no daemon has said yet which devices there are".to_owned()),
            (Some(works), Question::Get { device }) => works.twins.get(device.as_ref()),
            (Some(works), Question::Set { device, property, value }) => {
                works.twins.set(now, &device, &property, &value)
            }
            (Some(works), Question::Mappers {}) => works.twins.mappers(),
            (Some(works), Question::History { device, property }) => works.twins.history(&device, property.as_deref()),
            (Some(works), Question::Watch { device }) => {
                let answer = works.twins.get(device.as_ref());
                self.callers.watch(id, number, device);
                answer
            }
        };
        self.answer(id, number, answer);
    }

    pub(super) fn answer(&mut self, id: u64, number: u64, answer: Result<Value, String>) {
        let line = FromHelper::Answer { id: number, answer };
        let fits = serde_json::to_vec(&line).is_ok_and(|text| text.len() <= MAX_LINE);
        let too_much = || FromHelper::Answer { id: number, answer: Err("that is too much: name a device".to_owned()) };
        self.callers.tell(id, &if fits { line } else { too_much() });
    }

    pub(super) fn tell_watching(&mut self) {
        if self.watch_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.watch_at = None;
        if self.changed.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.changed);
        let concerned = |device: Option<&Named>| device.is_none_or(|device| changed.contains(device));
        let watches = self.callers.watches().filter(|(.., device)| concerned(*device));
        let watches: Vec<(u64, u64, Option<Named>)> =
            watches.map(|(id, number, device)| (id, number, device.cloned())).collect();
        for (id, number, device) in watches {
            self.watch_at = Some(Instant::now() + WATCH_PAUSE);
            let Some(answer) = self.works.as_ref().map(|works| works.twins.get(device.as_ref())) else { return };
            self.answer(id, number, answer);
        }
    }
}

/// Name of a line for the log, without its content.
const fn kind_of(line: &ToHelper) -> &'static str {
    match line {
        ToHelper::Daemon { .. } => "daemon",
        ToHelper::Client {} => "client",
        ToHelper::Ask { .. } => "ask",
        ToHelper::End {} => "end",
        _ => "what a daemon says",
    }
}
