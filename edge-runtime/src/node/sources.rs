//! The channels that news arrives on, and waiting for the first of all of them.

use std::collections::BTreeSet;

use smol::channel::{Receiver, Sender, bounded};
use smol::future::FutureExt;

use super::network::connecting::Answer;
use crate::clock::Clock;
use crate::image::ImageError;
use crate::image::progress::Progress;
use crate::link::LinkEvent;
use crate::monitor::client::MonitorEvent;
use crate::pod::clock::Mono;
use crate::pod::event::{HookKind, StartFailure};
use crate::pod::record::Resources;
use crate::probe::{HookDone, ProbeEvent};

/// One piece of news for the loop.
pub(super) enum News {
    Link(LinkEvent),
    Monitor(MonitorEvent),
    /// A pod that is being connected, or disconnected, has its answer from another process.
    Connection {
        uid: String,
        answer: Answer,
    },
    /// The monitor did not accept a start, or a helper found a volume that does not allow it.
    StartRefused {
        id: String,
        failure: StartFailure,
        message: String,
    },
    /// The monitor has forgotten an ended container, or could not.
    Deleted {
        id: String,
        result: Result<(), String>,
    },
    /// The monitor has forgotten all containers of a pod that is being taken down, or could not.
    Cleared {
        uid: String,
        result: Result<(), String>,
    },
    /// The kernel has the nft rules that were asked for, or refused them.
    RulesReplaced(Result<(), String>),
    /// A program, perhaps this node, has changed rules of the kernel.
    RulesChanged,
    /// Chains of other firewalls that block pods.
    OthersPassed(Vec<crate::net::firewall::others::Blocking>),
    /// The kernel has applied the NetworkPolicies, or refused them.
    PoliciesApplied(super::policies::done::Done),
    /// The kernel has applied the Services, or refused them.
    ServicesApplied(super::services::done::Done),
    /// The kernel has forgotten flows of datagrams that led to Services.
    FlowsForgotten,
    /// The same for pods that wait for their host ports, or for policies; with the result for them.
    PortsForgotten {
        uid: String,
        result: Result<(), String>,
    },
    LetIn {
        pods: BTreeSet<String>,
        result: Result<(), String>,
    },
    /// A pod asks for a name of a namespace of which the helper knows nothing.
    NamespaceAsked(String),
    /// Event of the device helper.
    Devices(crate::devices::Heard),
    /// Event of the helper for requests of pods to the API.
    LocalApi(crate::helper::client::Heard<sampan_api_control::FromHelper>),
    /// Event of the helper for device plugins.
    Plugins(crate::helper::client::Heard<sampan_plugins_control::FromHelper>),
    /// Event of the helper for a fleet job.
    Order(super::orders::heard::Heard),
    /// systemd has given containers of a pod other values, or could not: an answer for each.
    Resized {
        uid: String,
        resized: Vec<Resized>,
        done: Vec<Result<(), String>>,
    },
    Probe(ProbeEvent),
    /// A lifecycle hook has ended.
    HookDone(HookRef, HookDone),
    /// How far a long pull is.
    Pulling {
        job: u64,
        progress: Progress,
    },
    Pulled {
        job: u64,
        result: PullResult,
    },
    /// The helper has measured pods' disk use, or could not.
    Walked(u64, crate::eviction::walk::Answers),
    /// The helper has deleted layers of no image, or could not.
    Collected(Result<(), String>),
    /// A health request.
    Asked(crate::health::Asked),
    ManifestsChanged,
    /// The time asked for has come.
    Woken,
    Stop,
}

/// Which hook of which attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HookRef {
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) id: String,
    pub(super) hook: HookKind,
}

/// Id of the image, or why it could not be had. None: the image that is here is not the one to use.
pub(super) type PullResult = Result<Option<String>, ImageError>;

/// A container that is given other values, and what they are.
pub(super) struct Resized {
    pub(super) container: String,
    pub(super) id: String,
    pub(super) resources: Resources,
}

/// News waiting to be taken; producers wait while it is full.
const CAPACITY: usize = 1024;

/// The producers' ends.
#[derive(Clone)]
pub(super) struct Senders {
    pub(super) news: Sender<News>,
    pub(super) link: Sender<LinkEvent>,
    pub(super) monitor: Sender<MonitorEvent>,
}

/// The loop's ends.
pub(super) struct Sources {
    news: Receiver<News>,
    link: Receiver<LinkEvent>,
    monitor: Receiver<MonitorEvent>,
}

pub(super) fn channels() -> (Senders, Sources) {
    let (news_sender, news) = bounded(CAPACITY);
    let (link_sender, link) = bounded(CAPACITY);
    let (monitor_sender, monitor) = bounded(CAPACITY);
    let senders = Senders { news: news_sender, link: link_sender, monitor: monitor_sender };
    (senders, Sources { news, link, monitor })
}

impl Sources {
    /// Returns queued news. Those of the monitor come first: they are about running containers, those of the link about
    /// wanted ones.
    pub(super) fn try_next(&self) -> Option<News> {
        self.monitor
            .try_recv()
            .map(News::Monitor)
            .or_else(|_| self.news.try_recv())
            .or_else(|_| self.link.try_recv().map(News::Link))
            .ok()
    }

    /// Waits for news, at most until `wake`.
    pub(super) async fn next(&self, wake: Option<Mono>) -> Option<News> {
        if let Some(news) = self.try_next() {
            return Some(news);
        }
        let monitor = async { self.monitor.recv().await.ok().map(News::Monitor) };
        let news = async { self.news.recv().await.ok() };
        let link = async { self.link.recv().await.ok().map(News::Link) };
        let timer = async {
            match wake {
                Some(at) => drop(smol::Timer::after(at.since(Clock::mono())).await),
                None => smol::future::pending().await,
            }
            Some(News::Woken)
        };
        monitor.or(news).or(link).or(timer).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(news: Option<&News>) -> &'static str {
        match news {
            Some(News::Monitor(_)) => "monitor",
            Some(News::Link(_)) => "link",
            Some(News::Woken) => "woken",
            Some(_) => "node",
            None => "none",
        }
    }

    #[test]
    fn news_of_running_containers_come_before_wanted_ones() {
        let (senders, sources) = channels();
        senders.link.try_send(LinkEvent::NeedFacts).unwrap();
        senders.news.try_send(News::Stop).unwrap();
        senders.monitor.try_send(MonitorEvent::LogTrouble(None)).unwrap();
        senders.monitor.try_send(MonitorEvent::Silent(None)).unwrap();
        let order: Vec<&str> = (0..5).map(|_| name(sources.try_next().as_ref())).collect();
        assert_eq!(order, ["monitor", "monitor", "node", "link", "none"]);
    }

    #[test]
    fn news_that_wait_come_before_a_time_that_has_passed() {
        let (senders, sources) = channels();
        senders.link.try_send(LinkEvent::NeedFacts).unwrap();
        let next = || name(smol::block_on(sources.next(Some(Mono(0)))).as_ref());
        assert_eq!((next(), next()), ("link", "woken"));
    }

    #[test]
    fn end_of_the_producers_ends_the_wait() {
        let (senders, sources) = channels();
        drop(senders);
        assert_eq!(name(smol::block_on(sources.next(None)).as_ref()), "none");
    }
}
