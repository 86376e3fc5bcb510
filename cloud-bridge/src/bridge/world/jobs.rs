//! Which nodes receive orders of jobs: all nodes at once, since most have none. Pure.

use super::{Effect, Group, Round, World};

impl World {
    /// A node says on connecting whether it takes orders.
    pub fn takes_orders(&mut self, node: &str, takes: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(view) = self.nodes.get_mut(node) else { return effects };
        let before = std::mem::replace(&mut view.takes_orders, takes);
        let told = self.orders.of_node.get(node).into_iter().flat_map(Group::values);
        match (before, takes) {
            (false, true) => {
                effects.extend(told.map(|object| Effect::Set { node: node.to_owned(), object: object.clone() }))
            }
            (true, false) => effects.extend(told.map(|object| Effect::Withdraw {
                node: node.to_owned(),
                key: object.digest.key.clone(),
                uid: object.digest.uid.clone(),
            })),
            _ => {}
        }
        self.settle(node, &mut effects);
        effects
    }

    /// Sets the orders of these nodes, without changing others. `round`: everything was read for that round.
    pub fn orders(&mut self, round: Option<Round>, changed: Vec<(String, Group)>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (node, group) in changed {
            let old = match group.is_empty() {
                true => self.orders.of_node.remove(&node),
                false => self.orders.of_node.insert(node.clone(), group.clone()),
            };
            if !self.nodes.get(&node).is_some_and(|view| view.takes_orders) {
                continue;
            }
            let old = old.unwrap_or_default();
            for (key, had) in old.iter().filter(|(key, _)| !group.contains_key(*key)) {
                let (key, uid) = (key.clone(), had.digest.uid.clone());
                effects.push(Effect::Withdraw { node: node.clone(), key, uid });
            }
            let news = group.into_iter().filter(|(key, object)| old.get(key).is_none_or(|had| had != object));
            effects.extend(news.map(|(_, object)| Effect::Set { node: node.clone(), object }));
        }
        if let Some(round) = round.filter(|round| *round > self.orders.told) {
            self.orders.told = round;
            let waiting = self.nodes.iter().filter(|(_, view)| view.takes_orders && view.seeded && !view.listed);
            waiting
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
                .iter()
                .for_each(|node| self.settle(node, &mut effects));
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::{ORDER, Object, ObjectDigest, ObjectKey};
    use serde_json::Value;

    use super::*;
    use crate::bridge::world::Told;

    fn key(uid: &str) -> ObjectKey {
        ObjectKey { kind: ORDER.into(), namespace: String::new(), name: uid.into() }
    }

    fn group(orders: &[(&str, &str)]) -> Group {
        let told = |(uid, digest): &(&str, &str)| {
            let digest = ObjectDigest { key: key(uid), uid: (*uid).into(), digest: (*digest).into() };
            (key(uid), Told::new(Object { digest, body: Value::Null }))
        };
        orders.iter().map(told).collect()
    }

    fn words(effects: &[Effect]) -> Vec<String> {
        let word = |effect: &Effect| match effect {
            Effect::Set { node, object } => format!("set {node} {} {}", object.digest.uid, object.digest.digest),
            Effect::Withdraw { node, uid, .. } => format!("withdraw {node} {uid}"),
            Effect::Listed { node, .. } => format!("listed {node}"),
            Effect::ReadJobs => "read".into(),
            other => format!("{other:?}"),
        };
        effects.iter().map(word).collect()
    }

    /// A node that has connected and whose pods have been read.
    fn come(world: &mut World, node: &str) -> Vec<String> {
        world.add_node(node);
        let mut effects = world.takes_orders(node, true);
        world.refresh(node, 7);
        let round = world.round();
        effects.extend(world.seed(node, round, Vec::new(), None));
        words(&effects)
    }

    #[test]
    fn a_list_is_complete_when_jobs_have_been_read_since_the_node_came() {
        let mut world = World::default();
        assert_eq!(come(&mut world, "a"), ["read"]);
        assert!(
            world
                .orders(None, vec![("a".into(), group(&[("j", "1")]))])
                .iter()
                .all(|e| matches!(e, Effect::Set { .. }))
        );
        assert_eq!(words(&world.orders(Some(Round(1)), vec![])), ["listed a"]);
        assert_eq!(come(&mut world, "b"), ["read"]);
        assert!(world.orders(Some(Round(1)), vec![]).is_empty(), "that was before");
        assert_eq!(
            words(&world.orders(Some(Round(2)), vec![("b".into(), group(&[("j", "1")]))])),
            ["set b j 1", "listed b"]
        );
        world.add_node("old");
        world.refresh("old", 9);
        let round = world.round();
        assert_eq!(words(&world.seed("old", round, Vec::new(), None)), ["listed old"], "it knows no orders");
        assert!(world.orders(None, vec![("old".into(), group(&[("j", "1")]))]).is_empty());
        assert_eq!(words(&world.takes_orders("old", true)), ["set old j 1"], "by now it does");
    }

    #[test]
    fn orders_come_change_and_go() {
        let mut world = World::default();
        come(&mut world, "a");
        world.orders(Some(Round(1)), vec![]);
        assert_eq!(
            words(&world.orders(None, vec![("a".into(), group(&[("j", "1"), ("k", "1")]))])),
            ["set a j 1", "set a k 1"]
        );
        let one = group(&[("j", "2")]);
        assert_eq!(words(&world.orders(None, vec![("a".into(), one.clone())])), ["withdraw a k", "set a j 2"]);
        assert!(world.unlisted("a", &key("j"), "j").is_empty(), "it has been told since");
        assert_eq!(words(&world.unlisted("a", &key("k"), "k")), ["withdraw a k"]);
        assert!(world.orders(None, vec![("a".into(), one)]).is_empty());
        assert_eq!(words(&world.orders(None, vec![("a".into(), Group::new())])), ["withdraw a j"]);
        assert!(world.orders.of_node.is_empty());
    }
}
