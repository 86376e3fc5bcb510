//! The loop: passes events of callers, of the broker and of the clock to the core, and executes the core's outputs.
//! Does not decide about devices.
//!
//! | file | owns |
//! |---|---|
//! | `works` | who the helper works for, and what the daemon changes of that |
//! | `turn` | how many events a turn takes |
//! | `act` | what follows from an event |
//! | `said` | what the daemon and clients say, and what they are told |

mod act;
mod said;
mod turn;
mod works;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sampan_devices_control::{FromHelper, Named};
use sampan_grpc::Call;
use sampan_helper::listen;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use crate::dmi::{Answered, Dmi};
use crate::journal::Journal;
use crate::mqtt::{Filters, News, Outlets};
use crate::rules::{self, Request as RuleRequest};
use crate::server::{self, Callers};
use crate::twins::{Now, Request};
use turn::{NEWS, together};
use works::Works;

/// Time without an event that needs much memory for a moment.
const CALM: Duration = Duration::from_secs(2);
/// Prefix of the topics of devices: no namespace has a name that begins like that.
const OURS: &str = "$hw/";

/// Serves at this socket until the daemon ends it.
///
/// # Errors
/// The socket cannot be had.
pub async fn run(socket: &Path) -> io::Result<()> {
    let listening = listen(socket)?;
    let (heard, mut callers_news) = mpsc::channel(NEWS);
    let (news, mut broker_news) = mpsc::channel(NEWS);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (calls, mut mappers_calls) = mpsc::channel(NEWS);
    let (answered, mut mappers_answers) = mpsc::channel(NEWS);
    let (rule_calls, mut rules_answers) = rules::Calls::new();
    let (requests, mut rule_requests) = mpsc::channel(NEWS);
    let mut helper = Helper::new(socket, news, (calls, answered), rule_calls, requests);
    let serve = async {
        loop {
            let wake = helper.wake();
            tokio::select! {
                Some(heard) = callers_news.recv() => helper.heard(heard),
                Some(news) = broker_news.recv() => together(news, &mut broker_news, |news| helper.broker(news)),
                Some(call) = mappers_calls.recv() => helper.called(call),
                Some(answered) = mappers_answers.recv() => helper.answered(answered),
                Some(answered) = rules_answers.recv() => helper.carried_out(answered),
                Some(request) = rule_requests.recv() => helper.requested(request),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                _ = terminate.recv() => helper.ending = true,
                _ = interrupt.recv() => helper.ending = true,
            }
            helper.act();
            if helper.ending {
                return;
            }
        }
    };
    let local = LocalSet::new();
    local
        .run_until(async {
            tokio::select! {
                () = serve => {}
                () = server::accept(&listening, heard) => {}
            }
        })
        .await;
    if let Some(dmi) = helper.dmi.take() {
        dmi.close();
    }
    helper.callers.finish().await;
    Ok(())
}

struct Helper {
    start: Instant,
    callers: Callers,
    /// `None` before the first daemon.
    works: Option<Works>,
    outlets: Outlets,
    /// Topic filters of rules.
    filters: Filters,
    calls: rules::Calls,
    /// Sender for the servicebus; `None` once it is taken.
    requests: Option<mpsc::Sender<RuleRequest>>,
    news: mpsc::Sender<News>,
    /// `None` before the first daemon, and without DMI.
    dmi: Option<Dmi>,
    journal: Journal,
    mappers: (mpsc::Sender<Call>, mpsc::Sender<Answered>),
    /// Devices that changed since the last update of watching clients, and the time of the next one.
    changed: BTreeSet<Named>,
    watch_at: Option<Instant>,
    /// When memory is given back that much news has needed.
    trim_at: Option<Instant>,
    ending: bool,
}

impl Helper {
    fn new(
        socket: &Path,
        news: mpsc::Sender<News>,
        mappers: (mpsc::Sender<Call>, mpsc::Sender<Answered>),
        calls: rules::Calls,
        requests: mpsc::Sender<RuleRequest>,
    ) -> Self {
        Self {
            start: Instant::now(),
            callers: Callers::default(),
            works: None,
            outlets: Outlets::default(),
            filters: Filters::default(),
            calls,
            requests: Some(requests),
            news,
            dmi: None,
            journal: Journal::open(socket),
            mappers,
            changed: BTreeSet::new(),
            watch_at: None,
            trim_at: None,
            ending: false,
        }
    }

    fn now(&self) -> Now {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis);
        Now { mono: millis(self.start.elapsed()), wall }
    }

    fn wake(&self) -> Option<Instant> {
        let core = self
            .works
            .as_ref()
            .and_then(|works| [works.twins.wake(), works.messages.wake()].into_iter().flatten().min());
        let core = core.map(|at| self.start + Duration::from_millis(at));
        [core, self.watch_at, self.trim_at].into_iter().flatten().min()
    }

    fn broker(&mut self, news: News) {
        let now = self.now();
        let Some(works) = &mut self.works else { return };
        match news {
            News::Up => {
                log::info!("connected to the MQTT broker");
                self.outlets.broker(true);
                works.twins.broker(now, true);
            }
            News::Down => {
                self.outlets.broker(false);
                works.twins.broker(now, false);
            }
            News::Subscribed(filters) => {
                works.twins.subscribed(now, |topic| filters.iter().any(|filter| filter.matches(topic)));
            }
            News::Message { topic, payload, retained } if !topic.starts_with(OURS) => {
                works.messages.message(now, &topic, payload.as_deref(), retained);
            }
            News::Message { topic, payload, retained } => {
                works.twins.message(now, &topic, payload.as_deref(), retained);
            }
        }
    }

    fn called(&mut self, call: Call) {
        let now = self.now();
        let (Some(works), Some(dmi)) = (&mut self.works, &mut self.dmi) else { return };
        if let Some((number, request, pod)) = dmi.called(call, works.twins.minds_pods()) {
            // The answer to it needs much memory for a moment.
            if matches!(request, Request::Register(_)) {
                self.trim_at = Some(Instant::now() + CALM);
            }
            works.twins.asked(now, number, request, pod);
        }
    }

    fn answered(&mut self, Answered { call, answer }: Answered) {
        let now = self.now();
        if let Some(works) = &mut self.works {
            works.twins.answered(now, call, answer);
        }
    }

    /// Tells broker and listener the wanted topics.
    fn subscribe(&mut self) {
        if let Some(works) = &self.works {
            let wanted = works.wanted();
            self.outlets.hear(&wanted);
            self.filters.set(wanted);
        }
    }

    /// Executes a request of a rule.
    fn carry_out(&mut self, id: u64, call: Value) {
        let Some(works) = &mut self.works else { return };
        works.twins.counters().rules.calls += 1;
        if let Some(result) = self.calls.begin(id, call, &works.settings.rules, &mut self.outlets) {
            self.tell_result((id, result));
        }
    }

    fn carried_out(&mut self, answered: rules::Answered) {
        self.calls.done();
        self.tell_result(answered);
    }

    /// Handles a request of a program on this device to a rule.
    fn requested(&mut self, request: RuleRequest) {
        // The bytes of it are in several forms for a moment.
        self.trim_at = Some(Instant::now() + CALM);
        let line = self.works.as_mut().and_then(|works| works.requests.begin(request));
        if line.is_some_and(|line| !self.callers.tell_daemon(&line)) {
            self.daemon_went();
        }
    }

    fn tell_result(&mut self, (id, result): rules::Answered) {
        let answer = serde_json::to_value(result).unwrap_or_default();
        if !self.callers.tell_daemon(&FromHelper::Called { id, answer }) {
            self.daemon_went();
        }
    }
}
