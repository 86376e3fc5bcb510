//! A schema with its rules compiled: one node for each place that has rules, or has some further down.

pub(crate) mod shape;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::environment::Environment;
use crate::rule::Rule;
use shape::{Shape, embedded};

/// One place of a schema.
pub(crate) struct Node {
    /// Where it is in the schema, as findings about a definition name it.
    pub(crate) path: String,
    /// `None`: rules cannot see such values.
    pub(crate) shape: Option<Shape>,
    /// `type` of the schema.
    pub(crate) kind: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) additional: Option<Box<Node>>,
    pub(crate) all_of: Vec<Node>,
    /// Fields that identify an item of a list across versions.
    pub(crate) keys: Option<Vec<String>>,
    /// The path of the list whose items are not the same from one version of an object to the next, if it is in one.
    pub(crate) uncorrelatable: Option<String>,
}

/// Context that is passed down while a schema is read.
struct Place {
    path: String,
    uncorrelatable: Option<String>,
    root: bool,
}

impl Place {
    fn below(&self, step: &str, schema: &Value) -> Self {
        Self {
            path: format!("{}.{step}", self.path),
            uncorrelatable: self.uncorrelatable.clone(),
            root: embedded(schema),
        }
    }
}

impl Node {
    /// Compiles the rules of a whole resource's schema; `None` without rules.
    pub(crate) fn of(schema: &Value, path: &str, environment: &Environment) -> Option<Self> {
        let place = Place { path: path.to_owned(), uncorrelatable: None, root: true };
        node(schema, schema, &place, environment)
    }

    /// Every place with rules, the outer ones first.
    pub(crate) fn all(&self) -> Vec<&Self> {
        let mut found = vec![self];
        let below = self.properties.values().chain(self.items.as_deref()).chain(self.additional.as_deref());
        for inner in below.chain(&self.all_of) {
            found.extend(inner.all());
        }
        found
    }
}

/// `schema` has the types, `rules` the rules: within `allOf` they are two.
fn node(rules: &Value, schema: &Value, place: &Place, environment: &Environment) -> Option<Node> {
    let shape = Shape::of(schema, place.root);
    let list: Vec<&Value> = rules["x-kubernetes-validations"].as_array().into_iter().flatten().collect();
    let compile = |rule: &&Value| Rule::of(rule, schema, shape.as_ref(), environment);
    let mut made = Node {
        path: place.path.clone(),
        kind: schema["type"].as_str().unwrap_or_default().to_owned(),
        rules: Vec::with_capacity(list.len()),
        properties: BTreeMap::new(),
        items: None,
        additional: None,
        all_of: Vec::new(),
        keys: keys(schema),
        uncorrelatable: place.uncorrelatable.clone(),
        shape: None,
    };
    for (index, rule) in list.iter().enumerate() {
        environment.note(&format!("{}.x-kubernetes-validations[{index}].rule", place.path), rule);
        made.rules.push(compile(rule));
    }
    for (name, inner) in rules["properties"].as_object().into_iter().flatten() {
        let Some(typed) = schema["properties"].get(name) else { continue };
        let below = place.below(&format!("properties[{name}]"), typed);
        made.properties.extend(node(inner, typed, &below, environment).map(|node| (name.clone(), node)));
    }
    if rules["items"].is_object() && schema["items"].is_object() {
        let mut below = place.below("items", &schema["items"]);
        if made.keys.is_none() && below.uncorrelatable.is_none() {
            below.uncorrelatable = Some(below.path.clone());
        }
        made.items = node(&rules["items"], &schema["items"], &below, environment).map(Box::new);
    }
    let (inner, typed) = (&rules["additionalProperties"], &schema["additionalProperties"]);
    if inner.is_object() && typed.is_object() {
        let below = place.below("additionalProperties", typed);
        made.additional = node(inner, typed, &below, environment).map(Box::new);
    }
    for (index, inner) in rules["allOf"].as_array().into_iter().flatten().enumerate() {
        let mut below = place.below(&format!("allOf[{index}]"), schema);
        below.root = place.root;
        made.all_of.extend(node(inner, schema, &below, environment));
    }
    made.shape = shape;
    let deeper = !made.properties.is_empty() || made.items.is_some() || made.additional.is_some();
    (!made.rules.is_empty() || deeper || !made.all_of.is_empty()).then_some(made)
}

fn keys(schema: &Value) -> Option<Vec<String>> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
    Some(keys.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
