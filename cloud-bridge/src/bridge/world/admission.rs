//! Which nodes may get an object that several nodes use: each only after the API has allowed it in that node's name.
//! The object is watched in the name of one of them, whose right does not extend to the others. Pure.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::room::Place;
use super::shared::{Standing, User, Value, is_guarded, size};
use super::{Effect, World};

impl World {
    /// The API allows the node to read the object.
    pub fn admitted(&mut self, node: &str, key: &ObjectKey) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(name) = self.shared.get_key_value(key).map(|(name, _)| Arc::clone(name)) else { return effects };
        let Some(shared) = self.shared.get_mut(key) else { return effects };
        let Some(user) = shared.users.get_mut(node) else { return effects };
        // An answer to an earlier question: the node has no room for the name any more.
        if user.standing == Standing::Unasked {
            return effects;
        }
        if user.standing != Standing::Admitted {
            user.standing = Standing::Admitted;
            match &shared.value {
                Value::Present(object) if self.rooms.take(node, &name, size(object)) == Place::Whole => {
                    effects.push(Effect::Set { node: node.to_owned(), object: Arc::clone(object) });
                }
                // It was dropped, because the nodes that named it before had no room for it.
                Value::Absent if self.rooms.waits(&shared.reader, key) && !self.rooms.waits(node, key) => {
                    shared.read_again(self.round, key, &mut effects);
                }
                _ => {}
            }
            // The reader for all should be a node with the right to read.
            let reader = shared.reader.clone();
            let standing = shared.users.get(&reader).map(|user| user.standing);
            if standing.is_none_or(|standing| standing == Standing::Refused) {
                // Its own watch ends here, so further questions are needed.
                if standing.is_some() {
                    effects.push(Effect::Admit { key: key.clone(), node: reader });
                }
                shared.read_by_another(self.round, key, &mut effects);
            }
        }
        self.choose_volumes(node, Some(key), &mut effects);
        self.settle(node, &mut effects);
        effects
    }

    /// The API refuses, or does not answer. True if the question should be repeated, because the node still uses the
    /// object.
    pub fn not_admitted(&mut self, node: &str, key: &ObjectKey) -> (Vec<Effect>, bool) {
        let user = self.shared.get_mut(key).and_then(|shared| shared.users.get_mut(node));
        let Some(user) = user.filter(|user| [Standing::Asked, Standing::Refused].contains(&user.standing)) else {
            return (Vec::new(), false);
        };
        user.standing = Standing::Refused;
        let mut effects = Vec::new();
        self.settle(node, &mut effects);
        (effects, true)
    }

    /// The API refuses the object to the node in whose name it is watched: another node that was not refused, if there
    /// is one, reads it from now on. The known state stays.
    pub fn object_refused(&mut self, key: &ObjectKey) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(shared) = self.shared.get_mut(key).filter(|_| is_guarded(key)) else { return self.object_failed(key) };
        let asked = |user: &User| [Standing::Asked, Standing::Admitted].contains(&user.standing);
        let others = shared.users.iter().any(|(node, user)| *node != shared.reader && asked(user));
        if !others {
            return self.object_failed(key);
        }
        let refused = shared.reader.clone();
        if let Some(user) = shared.users.get_mut(&refused) {
            user.standing = Standing::Refused;
            effects.push(Effect::Admit { key: key.clone(), node: refused.clone() });
        }
        shared.read_by_another(self.round, key, &mut effects);
        self.settle(&refused, &mut effects);
        effects
    }
}
