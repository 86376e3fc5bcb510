//! Tests of `world`, case by case.

mod complete;
mod devices;
mod objects;
mod pods;
mod policies;
mod room;
mod services;
mod volumes;

use edge_protocol::message::{Object, ObjectDigest};
use serde_json::json;

use super::*;
use crate::bridge::slim::BoundPod;

const ROUTES: Wants =
    Wants { services: true, routes: true, policies: false, devices: false, rules: false, api: false, csi: false };

const SERVICES: Wants =
    Wants { services: true, routes: false, policies: false, devices: false, rules: false, api: false, csi: false };

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey { kind: kind.into(), namespace: "ns".into(), name: name.into() }
}

fn object(kind: &str, name: &str, uid: &str) -> Object {
    Object {
        digest: ObjectDigest { key: key(kind, name), uid: uid.into(), digest: format!("d-{uid}") },
        body: json!({}),
    }
}

fn pod(node: &str, name: &str, maps: &[&str]) -> BoundPod {
    BoundPod {
        node: node.into(),
        object: Told::new(object("Pod", name, &format!("uid-{name}"))),
        refs: maps.iter().map(|map| key("ConfigMap", map)).collect(),
        generation: 1,
        version: None,
        terminating: false,
        mirror_of: None,
        falsely_unready: false,
    }
}

/// Effects as short words.
fn words(effects: &[Effect]) -> Vec<String> {
    let word = |effect: &Effect| match effect {
        Effect::ReadJobs => "read jobs".to_owned(),
        Effect::Set { node, object } => format!("set {node} {} {}", object.digest.key.name, object.digest.uid),
        Effect::Remove { node, key, uid } => format!("remove {node} {} {uid}", key.name),
        Effect::Withdraw { node, key, uid } => format!("withdraw {node} {} {uid}", key.name),
        Effect::Listed { node, session } => format!("listed {node} {session}"),
        Effect::Watch { key, node } => format!("watch {} for {node}", key.name),
        Effect::Admit { key, node } => format!("admit {} for {node}", key.name),
        Effect::Ask { node, key, uid } => format!("ask {node} {} {uid}", key.name),
        Effect::Unwatch { key } => format!("unwatch {}", key.name),
        Effect::RestoreReady { node, key, .. } => format!("restore {node} {}", key.name),
        Effect::FinishMirror { node, key, .. } => format!("finish {node} {}", key.name),
    };
    effects.iter().map(word).collect()
}

/// The node's first connection; returns the round of the readings that follow.
fn hello(world: &mut World, node: &str) -> Round {
    world.add_node(node);
    world.refresh(node, 1);
    world.round()
}

fn world(nodes: &[&str]) -> World {
    let mut world = World::default();
    for node in nodes {
        let round = hello(&mut world, node);
        assert_eq!(words(&world.seed(node, round, vec![], None)), [format!("listed {node} 1")]);
    }
    world
}

fn views(names: &[(&str, &str)]) -> Group {
    let view = |(name, uid): &(&str, &str)| (key("ServiceView", name), Told::new(object("ServiceView", name, uid)));
    names.iter().map(view).collect()
}
