//! State that the parts of the node share: the configuration, clock and tasks, the store, the pods, and the way of
//! reports to the cloud. Each part owns its own state and gets this as an argument; it knows the loop, `launch` or the
//! monitor only if it gets those, too.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use async_executor::Task;
use jiff::Timestamp;
use serde_json::Value;

use super::acknowledged::Acknowledged;
use super::event_correlator::EventCorrelator;
use super::event_log::EventLog;
use super::outgoing::Outgoing;
use super::pods::{Entry, Pods};
use super::recovery::state::Recovery;
use super::sources::{News, Senders};
use crate::clock::Clock;
use crate::config::Config;
use crate::link::LinkHandle;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::local_api;
use crate::pod::spec::termination_grace_s;
use crate::pod::status::HostFacts;
use crate::store::Store;
use crate::sys::tasks::Tasks;

pub(super) struct Context {
    pub(super) config: Rc<Config>,
    pub(super) paths: Paths,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
    pub(super) senders: Senders,
    pub(super) store: Store,
    pub(super) pods: Pods,
    pub(super) recovery: Recovery,
    /// The monitor has said what runs; before that no pod takes a turn.
    pub(super) resumed: bool,
    pub(super) host: HostFacts,
    pub(super) link: Option<LinkHandle>,
    /// What pods trust for the local API, as a string of PEM.
    pub(super) api_certificate: Option<Value>,
    pub(super) outgoing: Outgoing,
    pub(super) acknowledged: Acknowledged,
    pub(super) correlator: EventCorrelator,
    pub(super) event_log: EventLog,
    /// When [`housekeeping`](super::housekeeping) is due; none for at once.
    pub(super) look_at: Option<Mono>,
}

impl Context {
    pub(super) fn mono(&self) -> Mono {
        self.clock.now().mono
    }

    /// Wall clock time: for display only, because it may jump.
    pub(super) fn wall(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// Housekeeping is due then at the latest.
    pub(super) fn look_again(&mut self, at: Mono) {
        self.look_at = self.look_at.map(|next| next.min(at));
    }

    pub(super) fn look_now(&mut self) {
        self.look_at = None;
    }

    /// The link, while it is up.
    pub(super) fn connection(&self) -> Option<&LinkHandle> {
        self.link.as_ref().filter(|link| link.is_connected())
    }

    /// Runs a job beside the loop; its result is news.
    pub(super) fn background(&self, job: impl Future<Output = impl Into<Option<News>>> + 'static) {
        self.task(job).detach();
    }

    /// Same as [`Context::background`], but dropping the task cancels it.
    pub(super) fn task(&self, job: impl Future<Output = impl Into<Option<News>>> + 'static) -> Task<()> {
        let news = self.senders.news.clone();
        self.tasks.spawn(async move {
            if let Some(done) = job.await.into() {
                // The loop is gone only when the process ends.
                let _ = news.send(done).await;
            }
        })
    }

    /// Takes news about a pod into its record. Stored with the pod's next turn.
    pub(super) fn tell(&mut self, uid: &str, event: PodEvent) {
        self.pods.tell(uid, event, &self.clock.now());
    }

    /// Where this node reaches a pod.
    pub(super) fn address_of(&self, entry: &Entry) -> IpAddr {
        let own = entry.record.ips.first().copied().or_else(|| self.host.host_ips.first().copied());
        own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// The pod's object (or manifest file) is gone.
    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let grace_s = termination_grace_s(&entry.pod);
        self.tell(uid, PodEvent::ObjectGone { grace_s });
    }

    /// What volumes and environments are made from, see [`Store::lookup`].
    pub(super) fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        match kind {
            local_api::KIND => self.api_certificate.clone(),
            _ => self.store.lookup(kind, namespace, name),
        }
    }

    /// Returns [`Context::object`] as a function.
    pub(super) fn objects(&self) -> impl Fn(&str, &str, &str) -> Option<Value> + '_ {
        |kind, namespace, name| self.object(kind, namespace, name)
    }
}

#[cfg(test)]
impl Context {
    /// Same as [`Context::for_tests`], in a new folder.
    pub(super) fn in_a_folder() -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().unwrap();
        let cx = Self::for_tests(folder.path());
        (folder, cx)
    }

    /// A node of the name `n` without pods and link. Its store is in memory, and its folders are below `root`.
    pub(super) fn for_tests(root: &std::path::Path) -> Self {
        use crate::config::{ConfigFile, Overrides};
        let file = std::path::Path::new("config.yaml");
        let overrides = Overrides { node_name: Some("n".to_owned()), joined: None };
        let parsed = ConfigFile::parse("", file).unwrap();
        let config = Config::from_file(parsed, file, root, &overrides).unwrap();
        let paths = Paths::new(root);
        Self {
            config: Rc::new(config),
            event_log: EventLog::new(&paths),
            paths,
            clock: Clock::new().unwrap(),
            tasks: Tasks::default(),
            senders: super::sources::channels().0,
            store: Store::in_memory().unwrap(),
            pods: Pods::default(),
            recovery: Recovery::default(),
            resumed: true,
            host: HostFacts::default(),
            link: None,
            api_certificate: None,
            outgoing: Outgoing::default(),
            acknowledged: Acknowledged::default(),
            correlator: EventCorrelator::default(),
            look_at: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::record::PodRecord;

    #[test]
    fn housekeeping_is_only_brought_forward() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        cx.look_again(Mono(5));
        assert_eq!(cx.look_at, None, "it is due at once");
        cx.look_at = Some(Mono(10));
        cx.look_again(Mono(20));
        assert_eq!(cx.look_at, Some(Mono(10)));
        cx.look_again(Mono(5));
        assert_eq!(cx.look_at, Some(Mono(5)));
        cx.look_now();
        assert_eq!(cx.look_at, None);
    }

    #[test]
    fn pod_is_reached_at_its_own_address_or_at_the_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut entry = Entry::new(Rc::default(), PodRecord::default());
        assert_eq!(cx.address_of(&entry).to_string(), "127.0.0.1");
        cx.host.host_ips = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(cx.address_of(&entry).to_string(), "192.0.2.1");
        entry.record.ips = vec!["fd00::2".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        assert_eq!(cx.address_of(&entry).to_string(), "fd00::2");
    }
}
