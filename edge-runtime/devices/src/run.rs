//! The loop: news of callers, of the broker and of the clock go into the core, and what the core wants done goes out. Decides
//! nothing of devices.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sampan_devices_control::{FromHelper, Kind, MAX_LINE, Named, Question, Settings, ToHelper, VERSION};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use crate::dmi::{Answered, Dmi};
use crate::grpc::Call;
use crate::journal::Journal;
use crate::mqtt::{Filters, News, Outlets};
use crate::rules::{self, Messages, Request as RuleRequest, Requests};
use crate::server::{self, Callers, Heard, Role, Said};
use crate::twins::{Now, Output, Request, Twins};

/// News that waits for the loop; who has more of it waits.
const NEWS: usize = 32;
/// Without news of a kind that needs much memory for a moment.
const CALM: Duration = Duration::from_secs(2);
/// Of the topics of devices: no namespace has a name that begins so.
const OURS: &str = "$hw/";
/// Between two answers to a question that is answered with each change.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// Serves at this socket until it is told to end.
///
/// # Errors
/// The socket cannot be had.
pub async fn run(socket: &Path) -> io::Result<()> {
    let listening = server::listen(socket)?;
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
                Some(news) = broker_news.recv() => {
                    helper.broker(news);
                    // What has come together is answered together; each of these has few answers.
                    for _ in 1..NEWS {
                        let Ok(news) = broker_news.try_recv() else { break };
                        helper.broker(news);
                    }
                }
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
                () = server::accept(&listening.listener, heard) => {}
            }
        })
        .await;
    helper.callers.finish().await;
    Ok(())
}

/// Who this helper works for.
#[derive(Debug)]
struct Works {
    node: String,
    settings: Settings,
    twins: Twins,
    messages: Messages,
    requests: Requests,
}

impl Works {
    /// What the broker is to be asked for besides messages of all devices.
    fn subscribe(&self, filters: &Filters) {
        let mut wanted = self.messages.filters();
        wanted.append(&mut self.twins.filters());
        filters.set(wanted);
    }

    /// One place shows both.
    fn count(&mut self) {
        let Messages { taken, dropped, .. } = self.messages;
        let refused = std::mem::take(&mut self.messages.refused);
        let counters = self.twins.counters();
        counters.refused += refused;
        (counters.rules.taken, counters.rules.dropped) = (taken, dropped);
    }
}

struct Helper {
    start: Instant,
    callers: Callers,
    /// None before the first daemon.
    works: Option<Works>,
    outlets: Outlets,
    /// What rules want to be subscribed to.
    filters: Filters,
    calls: rules::Calls,
    /// For the servicebus; none where it has been taken.
    requests: Option<mpsc::Sender<RuleRequest>>,
    news: mpsc::Sender<News>,
    /// None before the first daemon, and where DMI is off.
    dmi: Option<Dmi>,
    journal: Journal,
    mappers: (mpsc::Sender<Call>, mpsc::Sender<Answered>),
    /// Devices that have changed since watching clients were last told, and when they are told next.
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

    fn heard(&mut self, heard: Heard) {
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

    fn daemon_went(&mut self) {
        let now = self.now();
        if let Some(works) = &mut self.works {
            works.twins.daemon_went(now);
            works.messages.daemon_went();
            works.requests.link(false);
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
                    if tell(works, now, line) {
                        works.subscribe(&self.filters);
                    }
                    if first {
                        self.journal.begin(&works.twins.noted());
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
        let works = self.works.get_or_insert_with(|| {
            let seed = now.wall ^ (u64::from(std::process::id()) << 40);
            let (twins, messages) =
                (Twins::new(node.clone(), &settings, seed), Messages::new(settings.store.clone(), !seed));
            Works { twins, messages, requests: Requests::new(now.wall << 10), node, settings }
        });
        works.twins.daemon_came(now);
        works.messages.daemon_came();
        works.requests.daemon_came();
        if let (None, Some(settings)) = (&self.dmi, &works.settings.dmi) {
            let (calls, answered) = self.mappers.clone();
            self.dmi = Some(Dmi::start(settings.folder.clone(), calls, answered));
        }
    }

    /// A daemon for which another helper is needed: it is given what is to be kept, and starts one.
    fn other_daemon(&mut self, id: u64) {
        log::info!("the daemon is of another version, or has other settings: another helper is needed");
        self.callers.is_daemon(id);
        self.callers.tell(id, &FromHelper::Hello { version: VERSION });
        let now = self.now();
        if let Some(works) = &mut self.works {
            works.twins.daemon_came(now);
            works.messages.daemon_came();
            works.requests.daemon_came();
        }
        self.ending = true;
    }

    /// To the broker and for clients, when there are devices to speak of.
    fn connect(&mut self) {
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

    /// What a rule wants done here.
    fn carry_out(&mut self, id: u64, call: Value) {
        if let Some(works) = &mut self.works {
            works.twins.counters().rules.calls += 1;
        }
        if let Some(result) = self.calls.begin(id, call, &mut self.outlets) {
            self.tell_result((id, result));
        }
    }

    fn carried_out(&mut self, answered: rules::Answered) {
        self.calls.done();
        self.tell_result(answered);
    }

    /// What a program on this device wants of a rule.
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

    fn asked(&mut self, id: u64, number: u64, question: Question) {
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

    fn answer(&mut self, id: u64, number: u64, answer: Result<Value, String>) {
        let line = FromHelper::Answer { id: number, answer };
        let fits = serde_json::to_vec(&line).is_ok_and(|text| text.len() <= MAX_LINE);
        let too_much = || FromHelper::Answer { id: number, answer: Err("that is too much: name a device".to_owned()) };
        self.callers.tell(id, &if fits { line } else { too_much() });
    }

    /// Does what follows.
    fn act(&mut self) {
        self.act_once();
        let now = self.now();
        let Some(works) = &mut self.works else { return };
        if works.twins.changed_filters() {
            works.subscribe(&self.filters);
        }
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

    fn tell_watching(&mut self) {
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

fn do_dmi(dmi: &mut Dmi, output: Output) {
    match output {
        Output::Answer { call, answer } => dmi.answer(call, answer),
        Output::Call { mapper, socket, call, path, message } => dmi.call(mapper, socket, call, path, message),
        Output::Hangup { mapper } => dmi.hangup(mapper),
        Output::Publish(_) | Output::Tell(_) => {}
    }
}

/// What the daemon says, for the core. Whether rules may want to be subscribed to something else.
fn tell(works: &mut Works, now: Now, line: ToHelper) -> bool {
    let Works { twins, messages, requests, settings, .. } = works;
    match line {
        ToHelper::Object { kind: Kind::Rule, uid, body, .. } => {
            if requests.rule(&uid, &body) {
                messages.gone(&uid);
                if settings.servicebus.is_none() {
                    log::warn!("rule {uid} takes requests of this node, where device-twin.servicebus is off");
                }
            } else {
                messages.rule(uid, &body);
            }
            return true;
        }
        ToHelper::Gone { kind: Kind::Rule, uid, .. } => {
            messages.gone(&uid);
            requests.gone(&uid);
            return true;
        }
        ToHelper::Response { id, response } => requests.responded(id, response),
        ToHelper::Stored { batch } => messages.stored(batch),
        ToHelper::Object { kind, namespace, name, uid, body } => {
            twins.object(now, kind, Named { namespace, name }, uid, &body);
        }
        ToHelper::Gone { kind, namespace, name, uid } => twins.gone(now, kind, &Named { namespace, name }, &uid),
        ToHelper::Kept { uid, record } => twins.kept(uid, record),
        ToHelper::Told {} => {
            twins.told(now);
            messages.told();
            requests.told();
            return true;
        }
        ToHelper::Pod { uid, namespace } => twins.pod(now, &uid, namespace),
        ToHelper::Link { up, clock_set } => {
            twins.link(now, up, clock_set);
            requests.link(up);
        }
        ToHelper::Ack { batch, refused } => twins.acked(now, batch, &refused),
        ToHelper::Daemon { .. }
        | ToHelper::Client {}
        | ToHelper::Ask { .. }
        | ToHelper::Call { .. }
        | ToHelper::Ping {}
        | ToHelper::End {} => {}
    }
    false
}

/// For the log: without what it holds.
const fn kind_of(line: &ToHelper) -> &'static str {
    match line {
        ToHelper::Daemon { .. } => "daemon",
        ToHelper::Client {} => "client",
        ToHelper::Ask { .. } => "ask",
        ToHelper::End {} => "end",
        _ => "what a daemon says",
    }
}
