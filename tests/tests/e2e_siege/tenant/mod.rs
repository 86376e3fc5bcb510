//! A tenant: a service account with `edit` in its namespace, which has a quota and a pod on a node.
//!
//! | module | its attacks |
//! |---|---|
//! | `connections` | TLS and HTTP connections |
//! | `bodies` | single expensive requests |
//! | `objects` | many objects, owners and deletions |
//! | `custom` | custom resources with expensive schemas |
//! | `kept` | fields of which the bridge keeps much |
//! | `workloads` | work for controllers and the scheduler |
//! | `reads` | lists, watches and documents |
//! | `streams` | streams of its pod: exec, logs, port-forward |

mod bodies;
mod connections;
mod custom;
mod kept;
mod objects;
mod reads;
mod streams;
mod workloads;

use std::time::{Duration, Instant};

use sampan_tests::{Cluster, EdgeNode, manifest};
use serde_json::{Value, json};

use crate::client::{Client, Endpoint};
use crate::random::Random;
use crate::siege::{Attack, Done, account, undo};

/// Quota that an administrator grants.
const QUOTA: [(&str, &str); 11] = [
    ("pods", "200"),
    ("services", "300"),
    ("configmaps", "300"),
    ("secrets", "300"),
    ("persistentvolumeclaims", "100"),
    ("count/deployments.apps", "50"),
    ("count/replicasets.apps", "500"),
    ("count/jobs.batch", "50"),
    ("count/events", "2000"),
    ("count/endpointslices.discovery.k8s.io", "300"),
    ("count/networkpolicies.networking.k8s.io", "300"),
];
/// Simulated nodes without a daemon, for the scheduler.
const NODES: usize = 50;
const NAMESPACE: &str = "evil";
/// Time in which [`Tenant::hoard`] makes objects of one kind.
const HOARDED: Duration = Duration::from_secs(1);
pub(crate) const POD: &str = "bait";
pub(crate) const JSON: &str = "application/json";

pub(crate) struct Tenant {
    pub(crate) endpoint: Endpoint,
}

/// A connection and the number of its requests.
pub(crate) struct Asker {
    client: Client,
    pub(crate) done: Done,
}

impl Asker {
    /// Sends a request and returns the code of the answer. The attack continues after errors.
    pub(crate) fn ask(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Option<u16> {
        self.answer(method, path, kind, body).map(|(code, _)| code)
    }

    pub(crate) fn answer(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        self.done.requests += 1;
        let answer = self.client.send(method, path, kind, body).ok().flatten();
        let answer = answer.map(|answer| (answer.code, answer.body));
        self.done.accepted += u64::from(answer.as_ref().is_some_and(|(code, _)| (200..300).contains(code)));
        answer
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Option<u16> {
        self.ask("POST", path, JSON, body.to_string().as_bytes())
    }
}

impl Tenant {
    /// A namespace with a quota, a pod that runs on this node, and other nodes for pods that never run.
    pub(crate) fn settle(cluster: &Cluster, node: &EdgeNode) -> Self {
        let endpoint = account(cluster, NAMESPACE);
        let hard: serde_json::Map<String, Value> = QUOTA.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": NAMESPACE},
            "spec": {"hard": hard}});
        let script = "mkdir /w; httpd -p 8080 -h /w; while true; do echo line; sleep 0.1; done";
        let mut bait = manifest::pod(POD, &node.name, json!([manifest::shell("c", script)]));
        bait["metadata"]["namespace"] = json!(NAMESPACE);
        let mut objects = vec![quota, bait];
        objects.extend(custom::definition());
        objects.extend((0..NODES).map(|at| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("paper-{at}"),
                "labels": {"kubernetes.io/hostname": format!("paper-{at}"), "zone": format!("z{}", at % 7)}},
                "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
                    "capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"}}})
        }));
        let inside = sampan_tests::Kubectl { namespace: NAMESPACE.to_owned(), ..cluster.kubectl.clone() };
        inside.apply_all(&objects);
        let _ready = inside.wait_ready(POD);
        // The tenant's objects are for the simulated nodes.
        let _ = cluster.kubectl.ok(&["cordon", &node.name]);
        Self { endpoint }
    }

    pub(crate) fn attacks(&self) -> Vec<Attack<'_>> {
        let mut all = connections::attacks(self);
        all.extend(bodies::attacks(self));
        all.extend(objects::attacks(self));
        all.extend(kept::attacks(self));
        all.extend(custom::attacks(self));
        all.extend(workloads::attacks(self));
        all.extend(reads::attacks(self));
        all.extend(streams::attacks(self));
        all.push(self.hoard());
        all
    }

    /// The attacks that leave objects, a second each, so that objects of all kinds are there at once.
    fn hoard(&self) -> Attack<'_> {
        let makers = || {
            let all = [bodies::attacks(self), objects::attacks(self), kept::attacks(self), workloads::attacks(self)];
            all.into_iter().flatten().filter(|attack| attack.undo.is_some()).collect::<Vec<_>>()
        };
        let run = move |random: &mut Random, until: Instant| {
            let (mut makers, mut done) = (makers(), Done::default());
            random.shuffle(&mut makers);
            for maker in makers.iter().cycle() {
                let now = Instant::now();
                if now >= until {
                    break;
                }
                let one = (maker.run)(random, until.min(now + HOARDED));
                done.requests += one.requests;
                done.accepted += one.accepted;
            }
            done
        };
        let undo = move |until: Instant| {
            let makers = makers();
            undo(&makers.iter().collect::<Vec<_>>(), until.saturating_duration_since(Instant::now()))
        };
        Attack { undo: Some(Box::new(undo)), ..Attack::new("hoard", run) }
    }

    pub(crate) fn asker(&self) -> Asker {
        Asker { client: Client::new(self.endpoint.clone()), done: Done::default() }
    }

    /// An attack that repeats a request.
    fn repeated<'a>(
        &'a self,
        name: &str,
        one: impl Fn(&mut Asker, &mut Random) -> Option<u16> + Sync + 'a,
    ) -> Attack<'a> {
        Attack::new(name, move |random, until| {
            let mut asker = self.asker();
            while Instant::now() < until {
                let _whatever = one(&mut asker, random);
            }
            asker.done
        })
    }

    /// Same as [`Tenant::repeated`]; the collections are emptied afterwards.
    fn making<'a>(
        &'a self,
        name: &str,
        collections: &'a [&'a str],
        one: impl Fn(&mut Asker, &mut Random) -> Option<u16> + Sync + 'a,
    ) -> Attack<'a> {
        let undo = move |until| {
            let mut asker = self.asker();
            for collection in collections {
                // Workers that recreate objects stop first, so that their last objects are deleted too.
                asker.ask("DELETE", &path(collection), JSON, b"{\"propagationPolicy\":\"Background\"}");
            }
            let spared = format!("{}?fieldSelector=metadata.name!%3D{POD}", path("pods"));
            while Instant::now() < until {
                asker.ask("DELETE", &spared, JSON, b"{\"gracePeriodSeconds\":0}");
                let left = asker.answer("GET", &spared, "", b"").map(|(_, body)| body).unwrap_or_default();
                let left: Value = serde_json::from_slice(&left).unwrap_or_default();
                if left["items"].as_array().is_some_and(Vec::is_empty) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            asker.done
        };
        Attack { undo: Some(Box::new(undo)), ..self.repeated(name, one) }
    }
}

/// The path of a collection of the tenant's: `configmaps`, `apps/v1/deployments`.
pub(crate) fn path(collection: &str) -> String {
    match collection.rsplit_once('/') {
        None => format!("/api/v1/namespaces/{NAMESPACE}/{collection}"),
        Some((group, plural)) => format!("/apis/{group}/namespaces/{NAMESPACE}/{plural}"),
    }
}

/// A random name among `of` names.
pub(crate) fn named(random: &mut Random, of: usize) -> String {
    format!("x-{}", random.below(of))
}
