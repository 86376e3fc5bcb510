//! Runs attacks beside honest users: each alone, then random ones together until the time is over. Measures and judges.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use sampan_tests::{Cluster, Kubectl};
use serde_json::{Value, json};

use crate::client::{Access, Client, Endpoint};
use crate::honest::Honest;
use crate::random::Random;
use crate::table::{Bounds, HEAD, Look, Row};

/// Number of threads of one attack.
const WORKERS: usize = 4;
/// Time before the first attack, whose measurements are the baseline.
const QUIET: Duration = Duration::from_secs(3);
/// Maximum number of [`QUIET`] periods until users are answered again.
const RECOVERY: usize = 30;
/// Name of the row after all attacks: users are answered again.
pub(crate) const AFTERWARDS: &str = "nothing, afterwards";
/// Lower priority of the attackers: real ones run on other hosts, and take no CPU from the bridge.
const NICE: &str = "15";

/// Result of an attack.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Number of requests, connections or messages.
    pub(crate) requests: u64,
    /// Number of those answered with 2xx, if the attack reads answers.
    pub(crate) accepted: u64,
    /// Errors of others.
    pub(crate) wrong: Vec<String>,
}

impl From<u64> for Done {
    fn from(requests: u64) -> Self {
        Self { requests, ..Self::default() }
    }
}

/// Runs an attack until the time.
type Run<'a> = Box<dyn Fn(&mut Random, Instant) -> Done + Sync + 'a>;

/// One kind of attack.
pub(crate) struct Attack<'a> {
    pub(crate) name: String,
    /// Whether several run at once.
    pub(crate) workers: usize,
    /// Runs the attack until the time.
    pub(crate) run: Run<'a>,
    /// Deletes what the attack has created, which is another attack.
    pub(crate) undo: Option<Box<dyn Fn(Instant) -> Done + Sync + 'a>>,
}

impl<'a> Attack<'a> {
    pub(crate) fn new(name: &str, run: impl Fn(&mut Random, Instant) -> Done + Sync + 'a) -> Self {
        Self { name: name.to_owned(), workers: WORKERS, run: Box::new(run), undo: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// Duration of one attack.
    pub(crate) each: Duration,
    /// Total time; after each attack alone, the rest is for several together.
    pub(crate) total: Duration,
    /// Maximum number of different attacks.
    pub(crate) attacks: usize,
}

pub(crate) struct Siege {
    pub(crate) cluster: Cluster,
    pid: u32,
    time: Time,
    seed: u64,
    honest: Honest,
    before: Look,
    rows: Vec<Row>,
}

impl Siege {
    pub(crate) fn new(cluster: Cluster, time: Time) -> Self {
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_secs());
        // The short run always has the same seed, the hour a new one.
        let seed = crate::number("TEST_SIEGE_SEED").unwrap_or_else(|| if time.total.is_zero() { 1 } else { clock() });
        let endpoint = account(&cluster, "honest");
        let pid = cluster.bridge.as_ref().expect("a bridge").pid();
        let honest = Honest::new(endpoint.clone(), "honest");
        // Documents are built once and kept: their memory must not count for the first attack.
        let mut client = Client::new(endpoint);
        for path in ["/openapi/v2", "/apis", "/api/v1/namespaces/honest/configmaps"] {
            let _warm = client.send("GET", path, "", b"");
        }
        Self { cluster, pid, time, seed, honest, before: Look::default(), rows: Vec::new() }
    }

    /// Runs each attack alone, in random order, then several together.
    pub(crate) fn lay(&mut self, attacks: &[Attack<'_>]) {
        let only = std::env::var("TEST_SIEGE_ONLY").unwrap_or_default();
        let wanted = |attack: &&Attack<'_>| only.is_empty() || only.split(',').any(|word| attack.name.contains(word));
        let mut order: Vec<&Attack<'_>> = attacks.iter().filter(wanted).collect();
        let mut random = Random::new(self.seed);
        random.shuffle(&mut order);
        order.truncate(self.time.attacks);
        say(&format!("seed {}\n{HEAD}", self.seed));
        let end = Instant::now() + self.time.total;
        let (honest, mut rows) = (&self.honest, Vec::new());
        self.before = std::thread::scope(|scope| {
            scope.spawn(|| honest.run());
            let mut done = |row: Row| {
                say(&row.to_string());
                let lives = row.end.rss > 0;
                rows.push(row);
                lives
            };
            let quiet = self.quiet("nothing");
            let before = quiet.end;
            done(quiet);
            for round in 0.. {
                let (name, at_once) = match order.get(round) {
                    Some(attack) => (attack.name.clone(), vec![*attack; attack.workers]),
                    None if Instant::now() >= end || order.is_empty() => break,
                    None => {
                        let some: Vec<&Attack<'_>> = (0..WORKERS).map(|_| random.one(&order)).collect();
                        let names: Vec<&str> = some.iter().map(|attack| attack.name.as_str()).collect();
                        (names.join(" + "), some)
                    }
                };
                let seed = u64::try_from(random.below(usize::MAX)).unwrap_or_default();
                if !done(self.row(&name, || attack(&at_once, seed, self.time.each))) {
                    break;
                }
                let name = format!("  {name}: deleted");
                if at_once.iter().any(|attack| attack.undo.is_some())
                    && !done(self.row(&name, || undo(&at_once, self.time.each * 6)))
                {
                    break;
                }
            }
            let mut afterwards = self.quiet(AFTERWARDS);
            // Requests may still be under way.
            for _ in 0..RECOVERY {
                if afterwards.writes.count() > 0 && afterwards.failed.0 == 0 {
                    break;
                }
                afterwards = self.quiet(AFTERWARDS);
            }
            done(afterwards);
            honest.stop();
            before
        });
        self.rows = rows;
    }

    fn quiet(&self, name: &str) -> Row {
        self.row(name, || {
            std::thread::sleep(QUIET);
            Done::default()
        })
    }

    fn row(&self, name: &str, run: impl FnOnce() -> Done) -> Row {
        let _before = self.honest.take();
        // The peak counts from here (proc_pid_clear_refs(5)); the bridge may have ended.
        let _forgotten = std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5");
        let start = look(self.pid);
        let Done { requests, accepted, wrong } = run();
        let waited = self.honest.take();
        let attack = name.chars().take(120).collect();
        Row { attack, requests, accepted, wrong, start, end: look(self.pid), ..waited }
    }

    /// Checks that the controllers work for others: a Deployment of an honest user gets its pod.
    fn controllers(&self) -> Result<(), String> {
        let kubectl = Kubectl { namespace: "honest".to_owned(), ..self.cluster.kubectl.clone() };
        let wait = ["wait", "deployment/after", "--for=jsonpath={.status.replicas}=1", "--timeout=120s"];
        let made = kubectl.run(&["create", "deployment", "after", "--image=none.example/after"]);
        let done = made.and_then(|_| kubectl.run(&wait));
        done.map(|_| ()).map_err(|error| format!("the controllers make no pod any more: {error}"))
    }

    /// # Panics
    /// A limit was exceeded.
    pub(crate) fn judge(&mut self, bounds: Bounds) {
        let lines: Vec<String> = self.rows.iter().map(Row::to_string).collect();
        let last = std::iter::once(None).chain(self.rows.iter().map(Some));
        let rows = self.rows.iter().zip(last);
        let mut broken: Vec<String> = rows.flat_map(|(row, last)| row.breaks(bounds, self.before, last)).collect();
        let running = self.cluster.bridge.as_mut().is_some_and(sampan_tests::process::Process::is_running);
        if !running {
            broken.push("the bridge has ended".to_owned());
        }
        let log = self.cluster.log();
        let panics = log.lines().filter(|line| line.contains("panic at") || line.contains("panicked")).count();
        if panics > 0 {
            broken.push(format!("{panics} panics in the log"));
        }
        broken.extend(self.controllers().err());
        let summary = format!(
            "seed {}, {} attacks, {panics} panics, bridge {}; broken:\n{}",
            self.seed,
            lines.len(),
            if running { "never restarted" } else { "ended" },
            broken.join("\n"),
        );
        say(&summary);
        if let Some(path) = std::env::var_os("TEST_SIEGE_LOG") {
            std::fs::write(path, log).expect("a file for the log");
        }
        assert!(broken.is_empty(), "{HEAD}\n{}\n{summary}", lines.join("\n"));
    }
}

/// Runs all of them together, each with its own seed.
fn attack(attacks: &[&Attack<'_>], seed: u64, lasts: Duration) -> Done {
    let until = Instant::now() + lasts;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (worker, attack) in attacks.iter().enumerate() {
            let seed = seed ^ ((worker as u64) << 32);
            running.push(scope.spawn(move || {
                give_way();
                (attack.run)(&mut Random::new(seed), until)
            }));
        }
        let done = running.into_iter().map(|worker| worker.join().expect("an attack ends"));
        done.reduce(|mut all, done| {
            all.wrong.extend(done.wrong);
            Done { requests: all.requests + done.requests, accepted: all.accepted + done.accepted, ..all }
        })
        .unwrap_or_default()
    })
}

/// Deletes what these attacks have created. Only the last one waits until nothing is left: before, the objects of the
/// others still make new ones.
pub(crate) fn undo(attacks: &[&Attack<'_>], lasts: Duration) -> Done {
    let mut attacks = attacks.to_vec();
    attacks.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    attacks.dedup_by(|one, other| one.name == other.name);
    let undos: Vec<_> = attacks.iter().filter_map(|attack| attack.undo.as_ref()).collect();
    let mut all = Done::default();
    for (at, undo) in undos.iter().enumerate() {
        let is_last = at + 1 == undos.len();
        let done = undo(Instant::now() + if is_last { lasts } else { Duration::ZERO });
        all.requests += done.requests;
        all.accepted += done.accepted;
    }
    all
}

/// Lowers the priority of the calling thread, below the bridge and honest users.
fn give_way() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let id = thread.file_name().unwrap_or_default().to_owned();
    // Without it the attack takes CPU that it would not have on another host.
    let _ = std::process::Command::new("renice").args(["-n", NICE, "-p"]).arg(id).output();
}

/// The endpoint with the token of a new service account that may edit its own namespace.
pub(crate) fn account(cluster: &Cluster, namespace: &str) -> Endpoint {
    let access = Access::of(&cluster.kubectl);
    let mut admin = Client::new(access.admin());
    let mut made = |path: &str, body: Value| {
        let answer = admin.send("POST", path, "application/json", body.to_string().as_bytes());
        let answer = answer.expect("an answer").expect("an answer");
        assert_eq!(answer.code, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice::<Value>(&answer.body).unwrap_or_default()
    };
    made("/api/v1/namespaces", json!({"metadata": {"name": namespace}}));
    made(
        &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"),
        json!({
            "metadata": {"name": "edit"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        }),
    );
    let _ = cluster.kubectl.ok(&["wait", "--for=create", "--timeout=60s", "-n", namespace, "serviceaccount/default"]);
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    let token = made(&path, json!({"spec": {"expirationSeconds": 86_400}}));
    access.with(None, token["status"]["token"].as_str().map(str::to_owned))
}

fn look(pid: u32) -> Look {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Look {
        rss: field("status", "VmRSS:"),
        pss: field("smaps_rollup", "Pss:"),
        peak: field("status", "VmHWM:"),
        cpu: cpu(pid),
    }
}

/// The 14th and 15th field of `/proc/PID/stat` (proc_pid_stat(5)), in hundredths of a second on every current Linux.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may contain spaces; it ends with the last parenthesis.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn say(line: &str) {
    // The reader of the output may be gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}
