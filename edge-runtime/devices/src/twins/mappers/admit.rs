//! Permits or refuses calls of mappers by the namespace of their pod, and removes mappers that may not stay.

use std::collections::BTreeSet;

use super::super::now::Now;
use super::super::{Output, Twins};
use super::allowed::Verdict;
use super::mapper::Mapper;
use super::request::{Request, not_ready};
use sampan_devices_control::FromHelper;
use sampan_grpc::{Code, Status};
use sampan_sys::gather::Gather;

/// Pods whose namespace is remembered, and calls that wait for one.
const PODS: usize = 256;
const WAITING: usize = 64;
const NO_POD: &str = "it belongs to no pod that may have mappers";

fn refused(who: &str) -> Status {
    Status::new(
        Code::PermissionDenied,
        format!("{who} may not speak for devices here: see device-twin.dmi.allow-namespaces"),
    )
}

impl Twins {
    /// Whether whose processes call matters.
    pub fn minds_pods(&self) -> bool {
        !self.mappers.allowed.are_all()
    }

    /// Returns the call if it is permitted now. Otherwise it is answered, or waits for the daemon's answer about the
    /// pod.
    pub(super) fn admit(&mut self, call: u64, request: Request, pod: String) -> Option<(Request, String)> {
        let allowed = &mut self.mappers.allowed;
        let status = match allowed.judge(&pod) {
            Verdict::Yes => return Some((request, pod)),
            Verdict::No(who) => {
                if allowed.told.len() < PODS && allowed.told.insert(pod) {
                    log::warn!("{who} speaks as a mapper, and may not");
                }
                refused(&who)
            }
            Verdict::Unknown if self.daemon && allowed.waiting.len() < WAITING => {
                if !allowed.waiting.iter().any(|(.., waiting)| *waiting == pod) {
                    self.outputs.push(Output::Tell(FromHelper::Pod { uid: pod.clone() }));
                }
                allowed.waiting.push((call, request, pod));
                return None;
            }
            Verdict::Unknown => not_ready(),
        };
        self.counters.refused += 1;
        self.outputs.push(Output::Answer { call, answer: Err(status) });
        None
    }

    /// Where the pod of this uid is; none if the node has no such pod.
    pub fn pod(&mut self, now: Now, uid: &str, namespace: Option<String>) {
        let allowed = &mut self.mappers.allowed;
        if let Some(namespace) = &namespace {
            if allowed.known.len() >= PODS {
                allowed.known.clear();
            }
            allowed.known.insert(uid.to_owned(), namespace.clone());
        }
        let waiting = std::mem::take(&mut allowed.waiting).into_iter();
        let (of_pod, others): (Vec<_>, Vec<_>) = waiting.partition(|(.., pod)| pod == uid);
        allowed.waiting = others;
        let may = namespace.as_ref().is_some_and(|namespace| allowed.namespaces.contains(namespace));
        // A mapper goes with its pod, and its place is free.
        if namespace.is_none() || (!may && !allowed.are_all()) {
            self.expel(NO_POD, |mapper| mapper.info.pod == uid);
        }
        for (call, request, pod) in of_pod {
            match self.mappers.allowed.known.contains_key(&pod) {
                true => self.asked(now, call, request, pod),
                false => {
                    self.counters.refused += 1;
                    let answer = Err(refused("a pod that this node does not have"));
                    self.outputs.push(Output::Answer { call, answer });
                }
            }
        }
    }

    /// The namespaces of pods can no longer be learned.
    pub(in super::super) fn pods_unknown(&mut self) {
        for (call, ..) in std::mem::take(&mut self.mappers.allowed.waiting) {
            self.outputs.push(Output::Answer { call, answer: Err(not_ready()) });
        }
    }

    /// Checks mappers that registered with an earlier process or other settings: they may not be permitted any more.
    pub(super) fn check_mappers(&mut self) {
        if self.mappers.allowed.are_all() {
            return;
        }
        self.expel(NO_POD, |mapper| mapper.info.pod.is_empty());
        let pods: BTreeSet<String> = self.mappers.all.iter().map(|mapper| mapper.info.pod.clone()).into_set();
        self.outputs.extend(pods.into_iter().map(|uid| Output::Tell(FromHelper::Pod { uid })));
    }

    /// Frees a place for another mapper of this pod: the pod with the most mappers loses its newest one to a pod with fewer,
    /// so that a few pods cannot keep all places. Processes of the node lose none.
    pub(super) fn make_room(&mut self, pod: &str) -> bool {
        let all = &self.mappers.all;
        let of = |pod: &str| all.iter().filter(|mapper| mapper.info.pod == pod).count();
        let of_pods = all.iter().filter(|mapper| !mapper.info.pod.is_empty());
        let newest = of_pods.max_by_key(|mapper| (of(&mapper.info.pod), mapper.number));
        let newest = newest.filter(|newest| of(&newest.info.pod) > of(pod) + 1).map(|newest| newest.number);
        if let Some(number) = newest {
            self.expel("another pod with fewer mappers gets its place", |mapper| mapper.number == number);
        }
        newest.is_some()
    }

    /// Removes such mappers. They get no calls.
    fn expel(&mut self, why: &str, is_such: impl Fn(&Mapper) -> bool) {
        let Self { mappers, outputs, .. } = self;
        let rows = &mut mappers.rows;
        mappers.all.retain(|mapper| {
            let over = is_such(mapper);
            if over {
                log::warn!("mapper {} is removed: {why}", mapper.info.name);
                mapper.rows().for_each(|(uid, _)| rows.forget(uid));
                rows.at_once();
                outputs.push(Output::Hangup { mapper: mapper.number });
            }
            !over
        });
    }
}
