//! The attack: every client sends everything to every path; each answer is checked as it arrives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cases::{self, KINDS, METHODS, Place, QUERIES, Random};
use crate::client::{Answer, Client};
use crate::objects::{self, Model};
use sampan_tests::wait::patient;

/// Clients by turn, as indexes of their list, after each has tried everything once.
const TURNS: [usize; 8] = [0, 1, 1, 2, 3, 3, 3, 3];

/// Additional time on a slow machine until everything has been tried once.
const EXTRA: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Anonymous,
    Pod,
    Node,
    Admin,
}

/// Whether this answer is right for this client. The embedded API has no anonymous users, and no nodes at this port.
fn right(who: Who, code: u16, query: &str, path: &str, embedded: bool) -> bool {
    // Kubernetes answers 5xx if it cannot reach a forwarding target, and for an invalid revision of a watch.
    let its_own = match code {
        500 => path.contains("/proxy") || query.contains("resourceVersion"),
        503 => path.contains("/proxy"),
        _ => false,
    };
    if !embedded && its_own && matches!(who, Who::Admin | Who::Node) {
        return true;
    }
    let refused = (400..500).contains(&code);
    let told = code < 400 && cases::is_open(path);
    match who {
        Who::Anonymous | Who::Node if embedded => matches!(code, 400 | 401 | 414 | 431),
        Who::Anonymous => refused || told,
        Who::Pod => refused || told || path.contains("/selfsubject"),
        // Future revisions time out, and a Service without endpoints cannot be called, as in Kubernetes.
        Who::Node | Who::Admin => {
            code < 500
                || (code == 504 && query.contains("resourceVersion"))
                || (code == 503 && path.contains("/services/") && path.contains("/proxy"))
        }
    }
}

fn cut(text: &[u8], most: usize) -> String {
    String::from_utf8_lossy(text).chars().take(most).collect()
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) sent: usize,
    pub(crate) unanswered: usize,
    pub(crate) codes: BTreeMap<(Who, u16), usize>,
    /// Requests of the first pass that were not sent.
    pub(crate) left: usize,
    pub(crate) wrong: Vec<String>,
    /// The slowest answer, and its request.
    pub(crate) slowest: (Duration, String),
}

impl Tally {
    pub(crate) fn count(&self, who: Who, codes: std::ops::Range<u16>) -> usize {
        self.codes.iter().filter(|((of, code), _)| *of == who && codes.contains(code)).map(|(_, count)| count).sum()
    }
}

/// The target of the attack, and the objects for it.
pub(crate) struct Ground {
    pub(crate) places: Vec<Place>,
    pub(crate) models: Vec<Model>,
    pub(crate) garbage: Vec<Vec<u8>>,
    pub(crate) bodies: Vec<(&'static str, Vec<u8>)>,
    pub(crate) huge: Vec<(&'static str, Vec<u8>)>,
    pub(crate) long: String,
    pub(crate) embedded: bool,
}

impl Ground {
    pub(crate) fn attack(&self, clients: &mut [(Who, Client)], random: &mut Random, until: Instant) -> Tally {
        let mut tally = Tally::default();
        // First every client tries every method on every path; then random requests, mostly by clients with rights.
        let mut all: Vec<(usize, &str, usize)> = Vec::new();
        for at in 0..self.places.len() {
            all.extend(METHODS.iter().flat_map(|method| (0..clients.len()).map(move |who| (at, *method, who))));
        }
        let latest = until + patient(EXTRA);
        while tally.wrong.len() < 20 && Instant::now() < if all.is_empty() { until } else { latest } {
            if tally.sent % 100 == 0 {
                self.restore(clients, &mut tally);
            }
            let (at, method, turn) = match all.len() {
                0 => (random.below(self.places.len()), *random.one(&METHODS), *random.one(&TURNS)),
                left => all.swap_remove(random.below(left)),
            };
            let (who, client) = &mut clients[turn];
            let place = &self.places[at];
            if *who == Who::Admin && method == "DELETE" && place.shared {
                continue;
            }
            self.strike(*who, client, method, place, random, &mut tally);
            // Kubernetes answers 5xx for a path without a leading slash.
            if random.below(100) == 0
                && let Ok(Some(code)) = client.garble(random.one::<Vec<u8>>(&self.garbage))
                && self.embedded
                && (code == 500 || code > 505)
            {
                tally.wrong.push(format!("{code} for no request"));
            }
        }
        tally.left = all.len();
        tally
    }

    fn strike(
        &self,
        who: Who,
        client: &mut Client,
        method: &str,
        place: &Place,
        random: &mut Random,
        tally: &mut Tally,
    ) {
        let segment = |plural: &str| place.path.split('/').any(|segment| segment == plural);
        // Search from the end, because every path is below namespaces.
        let model = self.models.iter().rfind(|model| segment(model.plural));
        let (what, body, kind) = match (random.below(200), model) {
            (0, _) => {
                let (what, body) = random.one(&self.huge);
                (*what, Cow::Borrowed(body), *random.one(&KINDS))
            }
            (1..100, Some(model)) => {
                let body = objects::spoilt(&model.object, random);
                ("one spoilt", Cow::Owned(body), if method == "PATCH" { *random.one(&KINDS[1..4]) } else { KINDS[0] })
            }
            _ => {
                let (what, body) = random.one(&self.bodies);
                (*what, Cow::Borrowed(body), *random.one(&KINDS))
            }
        };
        let query = match random.below(500) {
            0 => format!("labelSelector={}", self.long),
            _ => (*random.one(&QUERIES)).to_owned(),
        };
        let path = if query.is_empty() { place.path.clone() } else { format!("{}?{query}", place.path) };
        let shown = || {
            let (path, text) = (cut(path.as_bytes(), 200), cut(&body, 3_000));
            format!("{who:?}: {method} {path} {kind:?} with {what}: {text}")
        };
        tally.sent += 1;
        let start = Instant::now();
        let sent = client.send(method, &path, kind, &body);
        if start.elapsed() > tally.slowest.0 {
            tally.slowest =
                (start.elapsed(), format!("{who:?}: {method} {} {kind:?} with {what}", cut(path.as_bytes(), 200)));
        }
        match sent {
            // The server may close the connection if a request is not HTTP, or if it does not read the body.
            Ok(None) if body.len() > 60_000 || query.len() > 60_000 => tally.unanswered += 1,
            Ok(None) => tally.wrong.push(format!("{}: hung up", shown())),
            Ok(Some(answer)) => {
                *tally.codes.entry((who, answer.code)).or_default() += 1;
                if !right(who, answer.code, &query, &place.path, self.embedded) {
                    tally.wrong.push(format!("{}: {} {}", shown(), answer.code, cut(&answer.body, 300)));
                }
            }
            Err(error) => tally.wrong.push(format!("{}: {error}", shown())),
        }
    }

    /// Restores what the administrator's requests have deleted.
    fn restore(&self, clients: &mut [(Who, Client)], tally: &mut Tally) {
        for (who, client) in clients.iter_mut().filter(|(who, _)| *who == Who::Admin) {
            for Model { collection: path, object: body, .. } in &self.models {
                tally.sent += 1;
                match client.send("POST", path, "application/json", body.to_string().as_bytes()) {
                    Ok(Some(Answer { code: code @ (201 | 409), .. })) => {
                        *tally.codes.entry((*who, code)).or_default() += 1
                    }
                    Ok(answer) => {
                        let answer =
                            answer.map(|answer| (answer.code, String::from_utf8_lossy(&answer.body).into_owned()));
                        tally.wrong.push(format!("{who:?}: POST {path} {body}: {answer:?}"));
                    }
                    Err(error) => tally.wrong.push(format!("{who:?}: POST {path} {body}: {error}")),
                }
            }
        }
    }
}
