//! What follows from an event: the outputs of the core, executed.

use tokio::time::Instant;

use super::Helper;
use crate::dmi::Dmi;
use crate::twins::Output;

impl Helper {
    /// Does what follows.
    pub(super) fn act(&mut self) {
        self.act_once();
        let now = self.now();
        let Some(works) = &mut self.works else { return };
        if works.twins.changed_filters() {
            self.subscribe();
        }
        let Some(works) = &mut self.works else { return };
        let retained = self.outlets.retained(&works.twins.unheard());
        if !retained.is_empty() {
            retained.into_iter().for_each(|(topic, payload)| works.twins.message(now, &topic, Some(&payload), true));
            self.act_once();
        }
    }

    fn act_once(&mut self) {
        let now = self.now();
        let room = self.outlets.room();
        let Some(works) = &mut self.works else { return self.trim() };
        works.count();
        works.twins.counters().listener = self.outlets.listening();
        works.twins.tick(now, room);
        if self.ending {
            works.twins.end(now);
        }
        self.journal.note(&works.twins.unnoted());
        if self.journal.is_long() {
            self.journal.begin(&works.twins.noted());
        }
        let batch = works.messages.batch(now, self.ending);
        let mut told = batch.is_none_or(|batch| self.callers.tell_daemon(&batch));
        for output in works.twins.outputs() {
            match output {
                Output::Publish(message) => self.outlets.publish(message),
                Output::Tell(line) => told &= self.callers.tell_daemon(&line),
                output => {
                    if let Some(dmi) = &mut self.dmi {
                        do_dmi(dmi, output);
                    }
                }
            }
        }
        works.twins.dropped(self.outlets.dropped());
        self.changed.append(&mut works.twins.changed());
        if !told {
            self.daemon_went();
        }
        self.tell_watching();
        self.trim();
    }

    fn trim(&mut self) {
        if self.trim_at.is_some_and(|at| at <= Instant::now()) {
            self.trim_at = None;
            sampan_memory::trim();
        }
    }
}

fn do_dmi(dmi: &mut Dmi, output: Output) {
    match output {
        Output::Answer { call, answer } => dmi.answer(call, answer),
        Output::Call { mapper, socket, call, path, message } => dmi.call(mapper, socket, call, path, message),
        Output::Hangup { mapper } => dmi.hangup(mapper),
        Output::Publish(_) | Output::Tell(_) => {}
    }
}
