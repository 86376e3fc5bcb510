//! Requests of programs on this device, for rules: which targets there are, and what is under way to the bridge. No I/O, no clock.

use edge_protocol::message::{CallFailure, CallResult, RuleRequest};
use sampan_devices_control::FromHelper;
use sampan_sys::vec_map::VecMap;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::http::failed;

/// Rules of one node. The bridge has its own bound.
const RULES: usize = 64;
/// Maximum number of running requests. The bridge permits a node twice as many, for this helper and a predecessor that
/// has died.
const AT_ONCE: usize = 16;

/// A request of a program.
#[derive(Debug)]
pub struct Request {
    /// Target in the form of a rule.
    pub target: String,
    pub body: Vec<u8>,
    pub answer: oneshot::Sender<CallResult>,
    /// Memory for its bytes, held until the bridge has answered.
    pub room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Target {
    url: String,
    /// Creation time of the rule, in seconds since 1970: rules of several namespaces may name one URL, and the oldest
    /// gets it.
    created: i64,
    /// Named by the daemon, in this round.
    said: bool,
}

#[derive(Debug)]
struct UnderWay {
    answer: oneshot::Sender<CallResult>,
    _room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub struct Requests {
    /// Targets by uid of the rule.
    targets: VecMap<String, Target>,
    /// Requests until they are answered, even if the client has gone: the bridge counts them like that.
    under_way: VecMap<u64, UnderWay>,
    last: u64,
    /// All rules have been said.
    ready: bool,
    link: bool,
}

impl Requests {
    /// `first`: numbers begin there, which no helper before this one has used lately.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self { targets: VecMap::new(), under_way: VecMap::new(), last: first, ready: false, link: false }
    }

    /// A daemon is there, and begins to tell which rules there are.
    pub fn daemon_came(&mut self) {
        self.link(false);
        self.targets.values_mut().for_each(|target| target.said = false);
    }

    /// All rules have been said.
    pub fn told(&mut self) {
        self.targets.retain(|_, target| target.said);
        self.ready = true;
    }

    /// A rule as it is now. Whether it is one of these.
    pub fn rule(&mut self, uid: &str, body: &Value) -> bool {
        let Some(url) = body["targetUrl"].as_str() else {
            self.gone(uid);
            return false;
        };
        if self.targets.len() < RULES || self.targets.contains_key(uid) {
            self.targets.insert(
                uid.to_owned(),
                Target { url: url.to_owned(), created: body["created"].as_i64().unwrap_or(0), said: true },
            );
        } else {
            log::warn!("rule {uid} is one too many: nothing is sent by it");
        }
        true
    }

    pub fn gone(&mut self, uid: &str) {
        self.targets.remove(uid);
    }

    /// Whether requests reach the bridge now. What is under way when they do not is lost, or its answer is.
    pub fn link(&mut self, up: bool) {
        self.link = up;
        if !up {
            for UnderWay { answer, .. } in std::mem::take(&mut self.under_way).into_values() {
                let why = "the line to the cloud broke before there was an answer: it may have been done";
                // The client may have left.
                let _ = answer.send(failed(CallFailure::Broken, why));
            }
        }
    }

    /// Begins a request and returns the line for the daemon; `None` if it is answered already.
    pub fn begin(&mut self, request: Request) -> Option<FromHelper> {
        let Request { target, body, answer, room } = request;
        let rules = self.targets.iter().filter(|(_, of)| of.url == target);
        let rule = rules.min_by_key(|(_, of)| of.created).map(|(uid, _)| uid.clone());
        let rule = match rule {
            _ if !self.ready => Err((CallFailure::Unavailable, "rules have not been told yet".to_owned())),
            // In KubeEdge's words.
            None => Err((
                CallFailure::Refused,
                format!("url {target} is not allowed and please make a rule for this url in the cloud"),
            )),
            Some(_) if !self.link => Err((CallFailure::Unavailable, "there is no link to the cloud".to_owned())),
            Some(_) if self.under_way.len() >= AT_ONCE => {
                Err((CallFailure::Unavailable, "too many requests are under way".to_owned()))
            }
            Some(rule) => Ok(rule),
        };
        match rule {
            Err((failure, why)) => {
                let _ = answer.send(failed(failure, &why));
                None
            }
            Ok(rule) => {
                self.last += 1;
                self.under_way.insert(self.last, UnderWay { answer, _room: room });
                let request = serde_json::to_value(RuleRequest { rule, body }).unwrap_or_default();
                Some(FromHelper::Request { id: self.last, request })
            }
        }
    }

    /// Passes the result of a request on to its program.
    pub fn responded(&mut self, id: u64, response: Value) {
        // A request of an earlier helper, or of a connection that has ended.
        let Some(UnderWay { answer, .. }) = self.under_way.remove(&id) else { return };
        let none = |error| failed(CallFailure::Broken, &format!("the answer of the bridge is none: {error}"));
        let _ = answer.send(serde_json::from_value(response).unwrap_or_else(none));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const URL: &str = "http://a/b";

    fn requests() -> Requests {
        let mut requests = Requests::new(7);
        requests.daemon_came();
        assert!(requests.rule("u", &json!({"targetUrl": URL})));
        requests.told();
        requests.link(true);
        requests
    }

    fn ask(requests: &mut Requests, target: &str) -> (Option<FromHelper>, oneshot::Receiver<CallResult>) {
        let (answer, answered) = oneshot::channel();
        let request = Request { target: target.into(), body: b"{}".to_vec(), answer, room: None };
        (requests.begin(request), answered)
    }

    fn failure(mut answered: oneshot::Receiver<CallResult>) -> CallFailure {
        match answered.try_recv() {
            Ok(CallResult::Failed { failure, .. }) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_answered_by_its_number() {
        let mut requests = requests();
        let (line, mut answered) = ask(&mut requests, URL);
        let wanted = FromHelper::Request { id: 8, request: json!({"rule": "u", "body": "e30="}) };
        assert_eq!(line, Some(wanted));
        requests.responded(7, json!({"published": {}}));
        assert!(answered.try_recv().is_err());
        requests.responded(8, json!({"http": {"status": 201, "headers": [], "body": ""}}));
        let wanted = CallResult::Http { status: 201, headers: vec![], body: vec![] };
        assert_eq!(answered.try_recv(), Ok(wanted));
        let (_, odd) = ask(&mut requests, URL);
        requests.responded(9, json!(["x"]));
        assert_eq!(failure(odd), CallFailure::Broken);
    }

    #[test]
    fn request_that_cannot_be_sent_is_answered_at_once() {
        let mut requests = requests();
        let refused = |requests: &mut Requests, target: &str| {
            let (line, answered) = ask(requests, target);
            assert_eq!(line, None);
            failure(answered)
        };
        assert_eq!(refused(&mut requests, "http://a/c"), CallFailure::Refused);
        requests.link(false);
        assert_eq!(refused(&mut requests, URL), CallFailure::Unavailable);
        requests.link(true);
        let (_, under_way) = ask(&mut requests, URL);
        requests.link(false);
        assert_eq!(failure(under_way), CallFailure::Broken, "it may have been done");
        requests.gone("u");
        assert_eq!(refused(&mut requests, URL), CallFailure::Refused);
        assert_eq!(refused(&mut Requests::new(0), URL), CallFailure::Unavailable, "nobody has said anything yet");
    }

    #[test]
    fn place_of_a_gone_client_is_held_until_the_answer() {
        let mut requests = requests();
        for _ in 0..AT_ONCE {
            assert!(ask(&mut requests, URL).0.is_some());
        }
        let (line, answered) = ask(&mut requests, URL);
        assert_eq!((line, failure(answered)), (None, CallFailure::Unavailable));
        requests.responded(8, Value::Null);
        assert!(ask(&mut requests, URL).0.is_some());
    }

    #[test]
    fn d13_replaced_or_removed_rule_gets_no_requests() {
        let mut requests = requests();
        assert!(!requests.rule("u", &json!({"topic": "a"})));
        assert!(requests.targets.is_empty());
        for number in 0..1_000 {
            assert!(requests.rule(&number.to_string(), &json!({"targetUrl": number.to_string()})));
        }
        assert_eq!(requests.targets.len(), RULES);
        requests.daemon_came();
        requests.told();
        assert!(requests.targets.is_empty());
    }
}
