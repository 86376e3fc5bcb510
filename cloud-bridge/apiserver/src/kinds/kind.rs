//! A built-in kind: one value with everything that differs from other kinds. Knows none of them.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::columns::{self, AnyTable};
use super::defaults::drop_zero;
use crate::codec::decode;
use crate::patch::merge_keys::{self, Type};
use crate::patch::shape::Shape;
use crate::patch::strategic::{self, PatchError};
use crate::resource::cel::CelQuestion;
use crate::resource::rules::{Changed, Rules};
use crate::resource::strategy::{self, Column, ScalePaths, Strategy};
use crate::resource::{ALL_VERBS, Hooks, Resource, STATUS_VERBS, Serves, Subresource, Text};
use apimachinery::field::FieldError;

type Rule = fn(&Value) -> Vec<FieldError>;
type ChangeRule = fn(&Value, &Value) -> Vec<FieldError>;
type Prepare = fn(&mut Value, &Value);

/// One built-in kind.
pub(crate) struct Kind {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// The resource in whose storage the objects are, when it is not its own.
    pub(crate) storage: &'static str,
    /// The typed check of a body; without one nothing is stored.
    pub(crate) check: Option<decode::Check>,
    pub(crate) rules: Rules,
    /// What raises `metadata.generation`, if the kind has one.
    pub(crate) generation: Option<Changed>,
    pub(crate) default: fn(&mut Value),
    pub(crate) prepare_create: fn(&mut Value),
    pub(crate) prepare_update: Prepare,
    /// Restores fields of the status that an update of the status must not change; the rest of the object is always
    /// restored.
    pub(crate) prepare_status: Prepare,
    pub(crate) create: Rule,
    pub(crate) update: ChangeRule,
    /// Returns the question about the validation rules within the object.
    pub(crate) validations: fn(&Value) -> Option<CelQuestion>,
    /// Whether nothing acts on objects of the kind; every write gets a warning about that.
    pub(crate) stored_only: bool,
    /// Warnings about a new object.
    pub(crate) warnings: fn(&Value) -> Vec<String>,
    /// Warnings about a changed object.
    pub(crate) update_warnings: fn(&Value) -> Vec<String>,
    /// The rules of the status subresource, if the kind has one.
    pub(crate) status: Option<ChangeRule>,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) subresources: &'static [Sub],
    pub(crate) table: &'static dyn AnyTable,
    pub(crate) fields: &'static [Selectable],
    /// How lists merge.
    pub(crate) keys: &'static Type,
}

/// Verbs of a subresource that passes requests on.
pub(crate) const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

/// A subresource beside `status` and `scale`.
pub(crate) struct Sub {
    name: &'static str,
    /// Group and kind of its requests and answers.
    group: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
    serves: Serves,
    /// Restores what an update of this part may not change; `rule` checks the rest.
    prepare: Prepare,
    rule: ChangeRule,
}

impl Sub {
    /// A part of the object of this kind, which may be read and changed by itself.
    pub(crate) const fn part(name: &'static str, kind: &'static str, prepare: Prepare, rule: ChangeRule) -> Self {
        Self { name, group: "", kind, verbs: STATUS_VERBS, serves: Serves::Part, prepare, rule }
    }

    /// Something else that is served beside the object.
    pub(crate) const fn other(
        name: &'static str,
        (group, kind): (&'static str, &'static str),
        verbs: &'static [&'static str],
        serves: Serves,
    ) -> Self {
        Self { name, group, kind, verbs, serves, prepare: |new, old| new.clone_from(old), rule: |_, _| Vec::new() }
    }
}

/// A field by which objects are selected.
pub(crate) struct Selectable {
    label: &'static str,
    /// The JSON pointer to its value.
    pointer: &'static str,
    /// Where its value is looked for instead while it is empty there.
    instead: &'static str,
    /// Its value where it is missing.
    missing: &'static str,
}

impl Selectable {
    /// A text, empty where it is missing.
    pub(crate) const fn text(label: &'static str, pointer: &'static str) -> Self {
        Self { label, pointer, instead: "", missing: "" }
    }

    /// A text of one place or, while that is empty, of another.
    pub(crate) const fn either(label: &'static str, pointer: &'static str, instead: &'static str) -> Self {
        Self { label, pointer, instead, missing: "" }
    }

    /// A number.
    pub(crate) const fn number(label: &'static str, pointer: &'static str) -> Self {
        Self { label, pointer, instead: "", missing: "0" }
    }

    /// A boolean.
    pub(crate) const fn flag(label: &'static str, pointer: &'static str) -> Self {
        Self { label, pointer, instead: "", missing: "false" }
    }
}

/// A kind without opinions, for the rest of a value.
pub(crate) const PLAIN: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: false,
    storage: "",
    check: None,
    rules: Rules::BUILT_IN,
    generation: None,
    default: |_| {},
    prepare_create: |_| {},
    prepare_update: |_, _| {},
    prepare_status: |_, _| {},
    create: |_| Vec::new(),
    update: |_, _| Vec::new(),
    validations: |_| None,
    stored_only: false,
    warnings: |_| Vec::new(),
    update_warnings: |_| Vec::new(),
    status: None,
    scale: None,
    subresources: &[],
    table: &columns::PLAIN,
    fields: &[],
    keys: &merge_keys::OBJECT,
};

/// An update of the main resource leaves the status as it is.
pub(crate) fn keep_status(new: &mut Value, old: &Value) {
    if let Some(map) = new.as_object_mut() {
        match old.get("status") {
            Some(status) => map.insert("status".to_owned(), status.clone()),
            None => map.remove("status"),
        };
    }
}

/// A status without validation.
pub(crate) fn any_status(_new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// Whether the spec has changed.
pub(crate) fn spec_changed(new: &Value, old: &Value) -> bool {
    new["spec"] != old["spec"]
}

impl Kind {
    /// The kind as a served resource.
    pub(crate) fn resource(&'static self) -> Arc<Resource> {
        let texts = |list: &[&'static str]| list.iter().map(|text| Text::from(*text)).collect();
        let sub = |name: &'static str, (group, kind): (&'static str, &'static str), verbs, serves| Subresource {
            name: name.into(),
            group: group.into(),
            version: self.version.into(),
            kind: kind.into(),
            verbs,
            serves,
        };
        let own = self.subresources.iter().map(|one| sub(one.name, (one.group, one.kind), one.verbs, one.serves));
        let status = self.status.map(|_| Subresource::status(self.group.into(), self.version.into(), self.kind.into()));
        let scale = self.scale.as_ref().map(|_| Subresource::scale());
        Arc::new(Resource {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            short_names: texts(self.short_names),
            namespaced: self.namespaced,
            categories: texts(self.categories),
            verbs: ALL_VERBS,
            subresources: own.chain(scale).chain(status).collect(),
            has_generation: self.generation.is_some(),
            decode: self.check,
            storage: match (self.storage, self.group) {
                ("", "") => self.plural.into(),
                ("", group) => format!("{}.{group}", self.plural).into(),
                (storage, _) => storage.into(),
            },
            hooks: Hooks::Builtin(self),
        })
    }
}

impl Strategy for Kind {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn default(&self, obj: &mut Value) {
        if let Some(metadata) = obj.get_mut("metadata") {
            drop_zero(metadata, &["annotations", "finalizers", "labels", "ownerReferences"]);
        }
        (self.default)(obj);
    }

    fn prepare_create(&self, obj: &mut Value) {
        (self.prepare_create)(obj);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        (self.prepare_update)(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        strategy::only_status(new, old);
        (self.prepare_status)(new, old);
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        self.generation.is_some_and(|changed| changed(new, old))
    }

    fn validate_create(&self, obj: &Value) -> Vec<FieldError> {
        (self.create)(obj)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        (self.update)(new, old)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.status.map(|rule| rule(new, old)).unwrap_or_default()
    }

    fn prepare_part_update(&self, part: &str, new: &mut Value, old: &Value) {
        match self.subresources.iter().find(|one| one.name == part) {
            Some(one) => (one.prepare)(new, old),
            None => new.clone_from(old),
        }
    }

    fn validate_part_update(&self, part: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        let found = self.subresources.iter().find(|one| one.name == part);
        found.map(|one| (one.rule)(new, old)).unwrap_or_default()
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn validations(&self, subresource: &str, new: &Value, _old: Option<&Value>) -> Option<CelQuestion> {
        if subresource.is_empty() { (self.validations)(new) } else { None }
    }

    fn warnings(&self, obj: &Value) -> Vec<String> {
        (self.warnings)(obj)
    }

    fn update_warnings(&self, obj: &Value) -> Vec<String> {
        (self.update_warnings)(obj)
    }

    fn deprecation(&self) -> Option<String> {
        self.rules.deprecated.map(str::to_owned)
    }

    fn notice(&self) -> Option<String> {
        self.stored_only.then(|| format!("{} is stored; nothing enforces it here", self.kind))
    }

    fn columns(&self) -> Vec<Column> {
        self.table.columns()
    }

    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value> {
        self.table.row(obj, now)
    }

    fn has_field_labels(&self) -> bool {
        !self.fields.is_empty()
    }

    fn field<'a>(&self, obj: &'a Value, label: &str) -> Option<Cow<'a, str>> {
        let field = self.fields.iter().find(|field| field.label == label)?;
        let found = obj.pointer(field.pointer).filter(|value| field.instead.is_empty() || *value != "");
        let found = found.or_else(|| obj.pointer(field.instead).filter(|_| !field.instead.is_empty()));
        Some(match found {
            Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
            Some(Value::Null) | None => Cow::Borrowed(field.missing),
            Some(other) => Cow::Owned(other.to_string()),
        })
    }

    fn shape(&self) -> Shape<'_> {
        Shape::built(self.keys)
    }

    fn strategic_merge(&self, current: Value, patch: Value) -> Result<Value, PatchError> {
        strategic::apply(self.keys, current, patch)
    }
}
