//! Pods that may use the API, by their tokens. No I/O, no clock: `now` is time since the start of the process.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use sampan_api_control::Pod;
use sampan_sys::vec_map::VecMap;

use crate::rate::Rate;

/// How long a replaced token is accepted: a program reads its file again every few minutes.
const OVERLAP: Duration = Duration::from_secs(600);
/// Pods of a node, and tokens of one pod.
const MAX_PODS: usize = 1_024;
const MAX_TOKENS: usize = 16;
/// Requests of one pod at once.
const MAX_REQUESTS: usize = 8;

/// SHA-256.
pub(crate) type Digest = [u8; 32];

/// A pod, for as long as any request of it is under way.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) uid: String,
    /// Namespace and name of its ServiceAccount: `NAMESPACE/NAME`.
    pub(crate) account: String,
    /// Turns of its own.
    pub(crate) rate: Rate,
    requests: Cell<usize>,
}

/// One request of a pod that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Rc<Who>);

#[derive(Debug)]
struct Known {
    who: Rc<Who>,
    /// With the time at which a replaced one is no longer accepted.
    tokens: Vec<(Digest, Option<Duration>)>,
    /// The connected daemon has named it.
    told: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Pods {
    pods: VecMap<String, Known>,
    ready: bool,
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

impl Who {
    /// Counts a request; `None` if too many are under way.
    pub(crate) fn begin(self: &Rc<Self>) -> Option<UnderWay> {
        let requests = self.requests.get();
        (requests < MAX_REQUESTS).then(|| {
            self.requests.set(requests + 1);
            UnderWay(Rc::clone(self))
        })
    }
}

impl UnderWay {
    /// Whether the pod has no other one.
    pub(crate) fn is_only(&self) -> bool {
        self.0.requests.get() == 1
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get().saturating_sub(1));
    }
}

impl Pods {
    /// A daemon begins to name all pods. Those of the one before stay until it has.
    pub(crate) fn begin(&mut self) {
        for known in self.pods.values_mut() {
            known.told = false;
        }
    }

    /// Adds a pod, or replaces its tokens.
    pub(crate) fn tell(&mut self, now: Duration, pod: Pod) {
        let mut new: Vec<_> = pod.tokens.iter().filter_map(|token| unhex(token)).map(|token| (token, None)).collect();
        new.truncate(MAX_TOKENS);
        if let Some(known) = self.pods.get_mut(&pod.uid) {
            for (token, until) in std::mem::take(&mut known.tokens) {
                let until = until.unwrap_or(now + OVERLAP);
                if until > now && !new.iter().any(|(kept, _)| *kept == token) && new.len() < 2 * MAX_TOKENS {
                    new.push((token, Some(until)));
                }
            }
            (known.tokens, known.told) = (new, true);
        } else if self.pods.len() < MAX_PODS {
            let account = format!("{}/{}", pod.namespace, pod.account);
            let who = Rc::new(Who { uid: pod.uid.clone(), account, rate: Rate::of_pod(), requests: Cell::new(0) });
            self.pods.insert(pod.uid, Known { who, tokens: new, told: true });
        } else {
            log::error!("pod {}/{} cannot use the API: there are {MAX_PODS} already", pod.namespace, pod.name);
        }
    }

    /// Removes a pod. Returns whether it was known.
    pub(crate) fn gone(&mut self, uid: &str) -> bool {
        self.pods.remove(uid).is_some()
    }

    /// The daemon has named all. Returns the uids of pods that it has not named, which are removed.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.ready = true;
        let gone: Vec<String> = self.pods.iter().filter(|(_, known)| !known.told).map(|(uid, _)| uid.clone()).collect();
        self.pods.retain(|_, known| known.told);
        gone
    }

    /// Whether a daemon has named all pods.
    pub(crate) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the pod of a token.
    pub(crate) fn find(&self, now: Duration, token: &Digest) -> Option<Rc<Who>> {
        let has = |known: &&Known| {
            known.tokens.iter().any(|(own, until)| own == token && until.is_none_or(|until| until > now))
        };
        self.pods.values().find(has).map(|known| Rc::clone(&known.who))
    }

    /// Whether a pod of this ServiceAccount is here.
    pub(crate) fn has_account(&self, account: &str) -> bool {
        self.pods.values().any(|known| known.who.account == account)
    }

    /// Returns the ServiceAccount of each pod.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &str> {
        self.pods.values().map(|known| known.who.account.as_str())
    }

    /// Returns the ServiceAccount of one pod.
    pub(crate) fn account(&self, uid: &str) -> Option<&str> {
        self.pods.get(uid).map(|known| known.who.account.as_str())
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }
}

/// The inverse of [`hex`].
pub(crate) fn unhex(text: &str) -> Option<Digest> {
    let mut out = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(out)
}

/// SHA-256 as 64 digits.
pub(crate) fn hex(digest: &[u8]) -> String {
    use std::fmt::Write;
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn pod(uid: &str, tokens: &[&str]) -> Pod {
        let tokens = tokens.iter().map(|token| hex(&sha256(token.as_bytes()))).collect();
        Pod { uid: uid.into(), namespace: "ns".into(), name: uid.into(), account: "sa".into(), tokens }
    }

    fn finds(pods: &Pods, now: Duration, token: &str) -> Option<String> {
        pods.find(now, &sha256(token.as_bytes())).map(|who| who.uid.clone())
    }

    #[test]
    fn pod_is_found_by_its_token_only() {
        let mut pods = Pods::default();
        pods.tell(NOW, pod("a", &["one", "two"]));
        pods.tell(NOW, Pod { tokens: vec!["zz".into(), "x".repeat(64)], ..pod("b", &[]) });
        assert_eq!(finds(&pods, NOW, "two").as_deref(), Some("a"));
        assert_eq!(finds(&pods, NOW, "other"), None);
        assert!(pods.gone("a") && !pods.gone("a"));
        assert_eq!(finds(&pods, NOW, "two"), None);
    }

    #[test]
    fn replaced_token_is_accepted_for_ten_minutes() {
        let mut pods = Pods::default();
        pods.tell(NOW, pod("a", &["old"]));
        pods.tell(NOW, pod("a", &["new"]));
        pods.tell(NOW + OVERLAP / 2, pod("a", &["new"]));
        for token in ["old", "new"] {
            assert_eq!(finds(&pods, NOW + OVERLAP - Duration::from_secs(1), token).as_deref(), Some("a"), "{token}");
        }
        assert_eq!(finds(&pods, NOW + OVERLAP, "old"), None);
        assert!(finds(&pods, NOW + OVERLAP, "new").is_some());
    }

    #[test]
    fn pods_that_a_new_daemon_does_not_name_are_removed() {
        let mut pods = Pods::default();
        assert!(!pods.is_ready());
        pods.tell(NOW, pod("a", &["a"]));
        pods.tell(NOW, pod("b", &["b"]));
        assert!(pods.told().is_empty() && pods.is_ready());
        pods.begin();
        pods.tell(NOW, pod("b", &["b"]));
        assert!(finds(&pods, NOW, "a").is_some(), "until all are named");
        assert_eq!(pods.told(), ["a"]);
        assert_eq!((finds(&pods, NOW, "a"), pods.len()), (None, 1));
    }

    #[test]
    fn requests_of_one_pod_have_a_limit() {
        let mut pods = Pods::default();
        pods.tell(NOW, pod("a", &["a"]));
        let who = pods.find(NOW, &sha256(b"a")).expect("known");
        let mut all: Vec<_> = (0..MAX_REQUESTS).map(|_| who.begin().expect("room")).collect();
        assert!(who.begin().is_none() && all.iter().all(|one| !one.is_only()));
        all.truncate(1);
        assert!(all.iter().all(UnderWay::is_only));
        assert!(who.begin().is_some());
    }
}
