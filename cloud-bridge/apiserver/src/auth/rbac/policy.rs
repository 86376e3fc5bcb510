//! All roles and bindings as an index: whose rules somebody has costs a look-up for each of their names, however many
//! bindings there are for others (K8s pkg/registry/rbac/validation/rule.go).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;

use super::rule::Rule;
use super::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::auth::attributes::Attributes;
use apimachinery::json::{items, text};
use apimachinery::user::{UserInfo, account_name};

/// How many bindings to roles that are not there one answer names.
const ERRORS_MAX: usize = 32;

/// The role of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl RoleRef {
    /// A ClusterRole.
    pub(crate) fn cluster(name: &str) -> Self {
        Self { group: super::GROUP.to_owned(), kind: "ClusterRole".to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(binding: &Value) -> Self {
        let field = |name: &str| text(&binding["roleRef"], name).to_owned();
        Self { group: field("apiGroup"), kind: field("kind"), name: field("name") }
    }
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// What is known of a binding.
#[derive(Debug)]
struct Binding {
    /// Empty for one that counts everywhere.
    namespace: String,
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// Bindings by their names, and these by the name of who has them.
type Bound = HashMap<String, BTreeMap<String, Arc<Binding>>>;

/// The bindings of a namespace, or those that count everywhere.
#[derive(Default)]
struct Scope {
    users: Bound,
    groups: Bound,
}

/// The index.
#[derive(Default)]
pub(crate) struct Policy {
    /// By namespace, which is empty for ClusterRoles, and name.
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    /// By namespace, which is empty for ClusterRoleBindings.
    scopes: HashMap<String, Scope>,
}

impl Policy {
    /// Takes in a change of an object from one state to another.
    pub(crate) fn change(&mut self, storage: &str, before: Option<&Value>, after: Option<&Value>) {
        match storage {
            ROLES | CLUSTER_ROLES => self.role(before, after),
            ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS => {
                before.into_iter().for_each(|binding| self.unbind(&Binding::of(binding)));
                after.into_iter().for_each(|binding| self.bind(Binding::of(binding)));
            }
            _ => {}
        }
    }

    fn role(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let Some(metadata) = after.or(before).map(|role| &role["metadata"]) else { return };
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        if let Some(role) = after {
            let roles = self.roles.entry(namespace.to_owned()).or_default();
            roles.insert(name.to_owned(), Rule::all(role).into());
        } else if let Some(roles) = self.roles.get_mut(namespace) {
            roles.remove(name);
            if roles.is_empty() {
                self.roles.remove(namespace);
            }
        }
    }

    fn bind(&mut self, binding: Binding) {
        let scope = self.scopes.entry(binding.namespace.clone()).or_default();
        let binding = Arc::new(binding);
        for subject in &binding.subjects {
            let Some((bound, name)) = scope.of(subject, &binding.namespace) else { continue };
            bound.entry(name).or_default().insert(binding.name.clone(), Arc::clone(&binding));
        }
    }

    fn unbind(&mut self, binding: &Binding) {
        let Some(scope) = self.scopes.get_mut(&binding.namespace) else { return };
        for subject in &binding.subjects {
            let Some((bound, name)) = scope.of(subject, &binding.namespace) else { continue };
            if let Some(bindings) = bound.get_mut(&name) {
                bindings.remove(&binding.name);
                if bindings.is_empty() {
                    bound.remove(&name);
                }
            }
        }
        if scope.users.is_empty() && scope.groups.is_empty() {
            self.scopes.remove(&binding.namespace);
        }
    }

    /// The rules of a role; `None` when there is none such.
    pub(crate) fn rules(&self, namespace: &str, role: &RoleRef) -> Option<&Arc<[Rule]>> {
        let namespace = if role.kind == "Role" { namespace } else { "" };
        self.roles.get(namespace)?.get(&role.name)
    }

    /// Tells of each binding of a user that counts in this namespace. One that names the user twice may be told of twice.
    fn visit<'a>(&'a self, user: &UserInfo, namespace: &str, mut tell: impl FnMut(&'a Binding) -> ControlFlow<()>) {
        let scopes = [Some(""), Some(namespace).filter(|namespace| !namespace.is_empty())];
        for scope in scopes.into_iter().flatten().filter_map(|scope| self.scopes.get(scope)) {
            let by_name = scope.users.get(&user.name).into_iter();
            let bindings = by_name.chain(user.groups.iter().filter_map(|group| scope.groups.get(group)));
            for binding in bindings.flat_map(BTreeMap::values) {
                if tell(binding).is_break() {
                    return;
                }
            }
        }
    }

    /// Whether the user may do this: `Ok` says by which binding, `Err` what could not be looked up.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<String, String> {
        let mut allowed = None;
        let mut errors = Vec::new();
        let mut seen = HashSet::new();
        self.visit(user, &attributes.path.namespace, |binding| {
            match self.rules(&binding.namespace, &binding.role) {
                // However many bindings there are to it, a role says the same.
                Some(rules) if !seen.insert(rules.as_ptr()) => {}
                Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    allowed = Some(format!("RBAC: allowed by {}", binding.shown(user)));
                    return ControlFlow::Break(());
                }
                Some(_) => {}
                None => note(&mut errors, binding.role.missing(false)),
            }
            ControlFlow::Continue(())
        });
        match allowed {
            Some(by) => Ok(by),
            None if errors.is_empty() => Err(String::new()),
            None => Err(format!("RBAC: {}", aggregate(&errors))),
        }
    }

    /// All rules that the user has in this namespace, and what could not be looked up. `stored` words it as the storage
    /// does, else as a cache does.
    pub(crate) fn rules_for(&self, user: &UserInfo, namespace: &str, stored: bool) -> (Vec<&Rule>, Option<String>) {
        let (mut rules, mut errors, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        self.visit(user, namespace, |binding| {
            match self.rules(&binding.namespace, &binding.role) {
                // However many bindings there are to it, a role says the same.
                Some(found) if seen.insert(found.as_ptr()) => rules.extend(found.iter()),
                Some(_) => {}
                None => note(&mut errors, binding.role.missing(stored)),
            }
            ControlFlow::Continue(())
        });
        (rules, Some(errors).filter(|errors| !errors.is_empty()).map(|errors| aggregate(&errors)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.scopes.is_empty()
    }
}

fn note(errors: &mut Vec<String>, error: String) {
    if errors.len() < ERRORS_MAX && !errors.contains(&error) {
        errors.push(error);
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
    /// Where a subject is in the index, and by which name; `None` for one that is nobody.
    fn of(&mut self, subject: &Subject, namespace: &str) -> Option<(&mut Bound, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => Some((&mut self.users, subject.account(namespace)?)),
            _ => None,
        }
    }
}

impl Subject {
    /// The user name of an account. In a RoleBinding it may leave out its namespace.
    fn account(&self, namespace: &str) -> Option<String> {
        let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
        (!namespace.is_empty()).then(|| account_name(namespace, &self.name))
    }

    fn applies(&self, user: &UserInfo, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => self.account(namespace).is_some_and(|name| name == user.name),
            _ => false,
        }
    }
}

impl RoleRef {
    /// That it is not there, as the cache of the authorizer says it or as the storage does.
    pub(crate) fn missing(&self, stored: bool) -> String {
        let resource = match (self.kind.as_str(), stored) {
            ("Role", false) => "role",
            ("Role", true) => "roles",
            ("ClusterRole", false) => "clusterrole",
            ("ClusterRole", true) => "clusterroles",
            (kind, _) => return format!("unsupported role reference kind: {kind:?}"),
        };
        format!("{resource}.{} {:?} not found", super::GROUP, self.name)
    }
}

impl Binding {
    fn of(binding: &Value) -> Self {
        let field = |value: &Value, name: &str| text(value, name).to_owned();
        let subject = |subject: &Value| Subject {
            kind: field(subject, "kind"),
            namespace: field(subject, "namespace"),
            name: field(subject, "name"),
        };
        Self {
            namespace: field(&binding["metadata"], "namespace"),
            name: field(&binding["metadata"], "name"),
            role: RoleRef::of(binding),
            subjects: items(binding, "subjects").iter().map(subject).collect(),
        }
    }

    /// As the reason of a decision names it, with the first subject that is the user.
    fn shown(&self, user: &UserInfo) -> String {
        let subject = self.subjects.iter().find(|subject| subject.applies(user, &self.namespace));
        let subject = subject.map_or(String::new(), |subject| match subject.kind.as_str() {
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { &self.namespace } else { &subject.namespace };
                format!("{} {:?}", subject.kind, format!("{}/{namespace}", subject.name))
            }
            kind => format!("{kind} {:?}", subject.name),
        });
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        format!("{kind} {name:?} of {} {:?} to {subject}", self.role.kind, self.role.name)
    }
}
