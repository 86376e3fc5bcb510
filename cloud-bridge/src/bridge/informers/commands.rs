//! Carries out commands about nodes: who has come, gone, moved or asked.

use std::sync::Arc;

use futures::FutureExt;
use kube::Api;

use super::Informers;
use super::answer::Answer;
use super::ask::{pods_to_reconcile, seed, seed_many};
use super::command::{Command, Wanted};
use crate::bridge::slim::SlimPod;
use crate::bridge::world::{Effect, Group};

/// Up to this number of nodes their pods are listed by node; beyond it, one list of all pods is less work for the API.
const FEW: usize = 8;

impl Informers {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Add(node) => {
                self.world.add_node(&node);
            }
            Command::Connected { node, session, resumed, wants } => {
                let Wanted { wants, orders, interests } = wants;
                let effects = self.world.takes_orders(&node, orders);
                self.apply(effects);
                let effects = self.world.connected(&node);
                self.apply(effects);
                let site = self.sites.borrow().of(&node).map(str::to_owned);
                let effects = self.world.wants(&node, wants, site.as_deref());
                self.apply(effects);
                self.attachments.set_wanted(self.world.any_takes_csi());
                let effects = self.world.interested(&node, &interests, self.begun.elapsed());
                self.apply(effects);
                if !resumed {
                    self.world.refresh(&node, session);
                    self.unseeded.insert(node);
                    self.seed();
                }
            }
            Command::Located(Some(node)) => {
                let site = self.sites.borrow().of(&node).map(str::to_owned);
                let effects = self.world.located(&node, site.as_deref());
                self.apply(effects);
            }
            Command::Located(None) => {
                let effects = self.world.all_located();
                self.apply(effects);
            }
            Command::Interested { node, session, interests } => {
                if self.nodes.is_present(&node, session) {
                    let effects = self.world.interested(&node, &interests, self.begun.elapsed());
                    self.apply(effects);
                }
            }
            Command::Orders { reading, changed } => {
                let effects = self.orders(reading, changed);
                self.apply(effects);
            }
            Command::Drop(node) => {
                let effects = self.world.drop_node(&node);
                self.apply(effects);
                self.attachments.set_wanted(self.world.any_takes_csi());
            }
            Command::ReconcileTolerations(node) => {
                let pods: Api<SlimPod> = Api::all(self.clients.own().clone());
                self.questions.push(pods_to_reconcile(pods, Arc::clone(&self.autonomy), node).boxed());
            }
            // Also for an object that a pod here names: its name may belong to another object by now.
            Command::LookUp { node, session, key, uid } => {
                let present = {
                    let (nodes, node) = (Arc::clone(&self.nodes), node.clone());
                    move || nodes.is_present(&node, session)
                };
                self.questions.extend(self.look_ups.ask(&self.clients, node, key, uid, present));
            }
        }
    }

    /// Requests the pods of new nodes: while one list is under way, further nodes wait for the next.
    pub(super) fn seed(&mut self) {
        if self.seeding {
            return;
        }
        let pods: Api<SlimPod> = Api::all(self.clients.own().clone());
        let nodes = std::mem::take(&mut self.unseeded);
        self.seeding = !nodes.is_empty();
        if !self.seeding {
            return;
        }
        let round = self.world.round();
        if nodes.len() > FEW {
            self.questions.push(seed_many(pods, nodes, round).boxed());
        } else {
            let each = nodes.into_iter().map(move |node| seed(pods.clone(), node));
            let all = futures::future::join_all(each);
            self.questions.push(all.map(move |all| Answer::Seeds { all, round }).boxed());
        }
    }

    /// Stores the orders of nodes, as of this reading.
    fn orders(&mut self, reading: u64, changed: Vec<(String, Group)>) -> Vec<Effect> {
        let mut round = None;
        while let Some((_, of)) = self.job_readings.pop_front_if(|(ticket, _)| *ticket <= reading) {
            round = Some(of);
        }
        self.world.orders(round, changed)
    }
}
