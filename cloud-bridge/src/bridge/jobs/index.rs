//! Which node should hold which orders: those that are under way according to the statuses of jobs. Pure: the order in
//! which changes of different jobs arrive does not matter, and outdated states of a job are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use edge_protocol::message::{ORDER, ObjectKey, Order};

use super::view::{Job, Kind};
use crate::bridge::slim::made_object;
use crate::bridge::world::{Group, Told};

type Uid = Box<str>;

/// All known jobs.
#[derive(Default)]
pub(super) struct Index {
    /// Unfinished jobs.
    jobs: BTreeMap<Uid, Live>,
    /// Finished jobs that still exist.
    ended: HashMap<Uid, Kind>,
    of_node: HashMap<Box<str>, BTreeSet<Uid>>,
    changed: BTreeSet<Box<str>>,
    /// Number of changes.
    revision: u64,
}

struct Live {
    job: Arc<Job>,
    told: Telling,
}

/// The order of a job's nodes.
#[derive(Default)]
enum Telling {
    /// Not created yet.
    #[default]
    Unmade,
    Made(Box<Order>, Arc<Told>),
    /// It cannot be created.
    Nothing,
}

/// The known state of a job.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Unknown,
    Ended,
    Live(Arc<Job>),
}

impl Index {
    pub(super) fn find(&self, uid: &str) -> Found {
        match self.jobs.get(uid) {
            Some(live) => Found::Live(Arc::clone(&live.job)),
            None if self.ended.contains_key(uid) => Found::Ended,
            None => Found::Unknown,
        }
    }

    /// Increases with every change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Uids of unfinished jobs.
    pub(super) fn live(&self) -> impl Iterator<Item = &Uid> {
        self.jobs.keys()
    }

    /// Sets the state of a job.
    pub(super) fn set(&mut self, job: Job) {
        let known = self.jobs.get(&job.uid);
        let old = known.is_some_and(|known| is_older(&job.version, &known.job.version) || *known.job == job);
        if old || self.ended.contains_key(&job.uid) {
            return;
        }
        self.revision += 1;
        let (uid, kind, ended) = (job.uid.clone(), job.kind, job.status.is_final());
        let before = self.orders(&uid);
        if ended {
            self.jobs.remove(&uid);
            self.ended.insert(uid.clone(), kind);
        } else {
            let told = self.jobs.remove(&uid).map(|live| live.told).unwrap_or_default();
            self.jobs.insert(uid.clone(), Live { job: Arc::new(job), told });
        }
        self.enter(&uid, before);
    }

    /// Removes a job that was deleted.
    pub(super) fn remove(&mut self, uid: &str) {
        let before = self.orders(uid);
        if self.jobs.remove(uid).is_some() | self.ended.remove(uid).is_some() {
            self.revision += 1;
        }
        self.enter(uid, before);
    }

    /// Replaces all jobs: others are deleted.
    pub(super) fn list(&mut self, all: Vec<Job>) {
        self.list_of(&Kind::ALL, all);
    }

    /// Replaces all jobs of a kind: others of it are deleted.
    pub(super) fn list_kind(&mut self, kind: Kind, all: Vec<Job>) {
        self.list_of(&[kind], all);
    }

    fn list_of(&mut self, kinds: &[Kind], all: Vec<Job>) {
        let listed: HashSet<Uid> = all.iter().map(|job| job.uid.clone()).collect();
        let live = self.jobs.iter().map(|(uid, live)| (uid, live.job.kind));
        let known = live.chain(self.ended.iter().map(|(uid, kind)| (uid, *kind)));
        let gone = known.filter(|(uid, kind)| kinds.contains(kind) && !listed.contains(*uid));
        let gone: Vec<Uid> = gone.map(|(uid, _)| uid.clone()).collect();
        gone.iter().for_each(|uid| self.remove(uid));
        all.into_iter().for_each(|job| self.set(job));
    }

    /// Sets the order of a job's nodes.
    pub(super) fn tell(&mut self, uid: &str, order: Order) {
        let Some(live) = self.jobs.get_mut(uid) else { return };
        if matches!(&live.told, Telling::Made(told, _) if **told == order) {
            return;
        }
        self.revision += 1;
        let key = ObjectKey { kind: ORDER.to_owned(), namespace: String::new(), name: uid.to_owned() };
        let body = serde_json::to_value(&order).unwrap_or_default();
        live.told = Telling::Made(Box::new(order), Told::new(made_object(key, uid.to_owned(), body)));
        let nodes = self.orders(uid);
        self.changed.extend(nodes);
    }

    /// Notes that no order can be created; one that was sent stays.
    pub(super) fn tell_nothing(&mut self, uid: &str) {
        if let Some(live) = self.jobs.get_mut(uid).filter(|live| matches!(live.told, Telling::Unmade)) {
            live.told = Telling::Nothing;
        }
    }

    /// Whether the orders of all jobs are known: then a node should hold no order that its group lacks.
    pub(super) fn is_whole(&self) -> bool {
        !self.jobs.values().any(|live| matches!(live.told, Telling::Unmade))
    }

    /// The group that a node should hold.
    pub(super) fn group(&self, node: &str) -> Group {
        let orders = self.of_node.get(node).into_iter().flatten();
        let told = orders.filter_map(|uid| match &self.jobs.get(uid)?.told {
            Telling::Made(_, told) => Some(Arc::clone(told)),
            Telling::Unmade | Telling::Nothing => None,
        });
        told.map(|told| (told.digest.key.clone(), told)).collect()
    }

    /// Nodes whose groups changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.changed)
    }

    /// Nodes with an order under way.
    fn orders(&self, uid: &str) -> BTreeSet<Box<str>> {
        let entries = self.jobs.get(uid).into_iter().flat_map(|live| &live.job.status.nodes);
        entries.filter(|entry| entry.is_under_way()).map(|entry| entry.node_name.clone()).collect()
    }

    fn enter(&mut self, uid: &str, before: BTreeSet<Box<str>>) {
        let now = self.orders(uid);
        for node in before.difference(&now) {
            if let Some(orders) = self.of_node.get_mut(node) {
                orders.remove(uid);
                if orders.is_empty() {
                    self.of_node.remove(node);
                }
            }
        }
        for node in now.difference(&before) {
            self.of_node.entry(node.clone()).or_default().insert(uid.into());
        }
        self.changed.extend(before.symmetric_difference(&now).cloned());
    }
}

/// Compares two versions of one object: if they are numbers (KEP-5504), the lower one is older.
fn is_older(version: &str, than: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    number(version).zip(number(than)).is_some_and(|(one, other)| one < other)
}

#[cfg(test)]
mod tests;
