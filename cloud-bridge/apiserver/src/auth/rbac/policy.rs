//! All roles and bindings as an index: finding the rules of a user costs one lookup for each of the user's names,
//! regardless of the number of other bindings (K8s pkg/registry/rbac/validation/rule.go). Their amount in a namespace
//! is bounded, and with it the cost of a decision.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;

use super::binding::{Binding, Place, RoleRef, Who, subjects};
use super::rule::Rule;
use super::weight::weight;
use super::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::auth::attributes::Attributes;
use apimachinery::json::text;
use apimachinery::user::UserInfo;

/// How many bindings to roles that are not there one answer names.
const ERRORS_MAX: usize = 32;

/// A binding of a user: the subject that matched, and whether it matched as a service account.
#[derive(Clone)]
struct Held {
    binding: Arc<Binding>,
    number: usize,
    account: bool,
}

/// Bindings by name, for each name of a subject.
type Bound = HashMap<String, BTreeMap<String, Held>>;

/// Roles and bindings of a namespace, or of the cluster.
#[derive(Default, Clone)]
struct Scope {
    roles: HashMap<String, Arc<[Rule]>>,
    users: Bound,
    groups: Bound,
    weight: usize,
}

/// The index. A copy shares the namespaces that do not change.
#[derive(Default, Clone)]
pub(crate) struct Policy {
    /// By namespace, which is empty for ClusterRoles and ClusterRoleBindings.
    scopes: HashMap<String, Arc<Scope>>,
}

impl Policy {
    /// Applies a change of an object to the index.
    pub(crate) fn change(&mut self, storage: &str, before: Option<&Value>, after: Option<&Value>) {
        let Some(metadata) = after.or(before).map(|object| &object["metadata"]) else { return };
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        let scope = Arc::make_mut(self.scopes.entry(namespace.to_owned()).or_default());
        scope.weight = scope.weight.saturating_sub(before.map_or(0, weight)).saturating_add(after.map_or(0, weight));
        match storage {
            ROLES | CLUSTER_ROLES => match after {
                Some(role) => drop(scope.roles.insert(name.to_owned(), Rule::all(role).into())),
                None => drop(scope.roles.remove(name)),
            },
            ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS => {
                before.into_iter().for_each(|binding| scope.unbind(binding, name));
                after.into_iter().for_each(|binding| scope.bind(binding));
            }
            _ => {}
        }
        if scope.is_empty() {
            self.scopes.remove(namespace);
        }
    }

    /// How much the roles and bindings of a namespace weigh, or those that count everywhere.
    pub(crate) fn weight(&self, namespace: &str) -> usize {
        self.scopes.get(namespace).map_or(0, |scope| scope.weight)
    }

    /// The rules of a role; `None` if the role does not exist.
    pub(crate) fn rules(&self, namespace: &str, role: &RoleRef) -> Option<&Arc<[Rule]>> {
        let namespace = if role.kind == "Role" { namespace } else { "" };
        self.scopes.get(namespace)?.roles.get(&role.name)
    }

    /// Calls `visit` for each binding of a user that applies to this namespace. A binding that names the user twice may
    /// be visited twice.
    fn visit<'a>(
        &'a self,
        user: &UserInfo,
        namespace: &str,
        mut tell: impl FnMut(&'a Scope, &'a Binding) -> ControlFlow<()>,
    ) {
        let scopes = [Some(""), Some(namespace).filter(|namespace| !namespace.is_empty())];
        for scope in scopes.into_iter().flatten().filter_map(|scope| self.scopes.get(scope)) {
            let by_name = scope.users.get(&user.name).into_iter();
            let bindings = by_name.chain(user.groups.iter().filter_map(|group| scope.groups.get(group)));
            for held in bindings.flat_map(BTreeMap::values) {
                if tell(scope, &held.binding).is_break() {
                    return;
                }
            }
        }
    }

    /// Whether the user may do this: `Ok` names the binding, `Err` the objects that could not be found.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<String, String> {
        let mut allowed = None;
        let mut errors = Vec::new();
        let mut seen = HashSet::new();
        self.visit(user, &attributes.path.namespace, |scope, binding| {
            match self.rules(&binding.namespace, &binding.role) {
                // A role grants the same through any number of bindings.
                Some(rules) if !seen.insert(rules.as_ptr()) => {}
                Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    allowed = Some(format!("RBAC: allowed by {}", scope.shown(binding, user)));
                    return ControlFlow::Break(());
                }
                Some(_) => {}
                None => note(&mut errors, || binding.role.missing(None)),
            }
            ControlFlow::Continue(())
        });
        match allowed {
            Some(by) => Ok(by),
            None if errors.is_empty() => Err(String::new()),
            None => Err(format!("RBAC: {}", aggregate(&errors))),
        }
    }

    /// All rules that the user has in this namespace, and what could not be looked up, in the words of
    /// [`RoleRef::missing`].
    pub(crate) fn rules_for(
        &self,
        user: &UserInfo,
        namespace: &str,
        asked: Option<&str>,
    ) -> (Vec<&Rule>, Option<String>) {
        let (mut rules, mut errors, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        self.visit(user, namespace, |_, binding| {
            match self.rules(&binding.namespace, &binding.role) {
                // A role grants the same through any number of bindings.
                Some(found) if seen.insert(found.as_ptr()) => rules.extend(found.iter()),
                Some(_) => {}
                None => note(&mut errors, || binding.role.missing(asked)),
            }
            ControlFlow::Continue(())
        });
        (rules, Some(errors).filter(|errors| !errors.is_empty()).map(|errors| aggregate(&errors)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }
}

fn note(errors: &mut Vec<String>, error: impl FnOnce() -> String) {
    if errors.len() < ERRORS_MAX {
        let error = error();
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
}

/// Several errors as one (apimachinery's util/errors).
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl Scope {
    fn bind(&mut self, object: &Value) {
        let binding = Arc::new(Binding::of(object));
        for (number, place) in subjects(object) {
            let (bound, name, account) = self.at(place);
            let held = Held { binding: Arc::clone(&binding), number, account };
            // The first valid subject counts.
            bound.entry(name).or_default().entry(binding.name.clone()).or_insert(held);
        }
    }

    fn unbind(&mut self, object: &Value, binding: &str) {
        for (_, place) in subjects(object) {
            let (bound, name, _) = self.at(place);
            if let Some(bindings) = bound.get_mut(&name) {
                bindings.remove(binding);
                if bindings.is_empty() {
                    bound.remove(&name);
                }
            }
        }
    }

    /// Where a subject is in the index, by which name, and whether it is a service account.
    fn at(&mut self, place: Place) -> (&mut Bound, String, bool) {
        match place {
            Place::User { name, account } => (&mut self.users, name, account),
            Place::Group(name) => (&mut self.groups, name, false),
        }
    }

    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty() && self.weight == 0
    }

    /// A binding as the reason of a decision names it: with the first of its subjects that is the user.
    fn shown(&self, binding: &Binding, user: &UserInfo) -> String {
        let held =
            |bound: &Bound, name: &str| bound.get(name)?.get(&binding.name).map(|held| (held.number, held.account));
        let by_name = held(&self.users, &user.name)
            .map(|(number, account)| (number, if account { Who::Account(&user.name) } else { Who::User(&user.name) }));
        let by_group = user.groups.iter().filter_map(|group| Some((held(&self.groups, group)?.0, Who::Group(group))));
        let first = by_name.into_iter().chain(by_group).min_by_key(|(number, _)| *number);
        binding.shown(&first.map_or(Who::User(&user.name), |(_, who)| who))
    }
}
