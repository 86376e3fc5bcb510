//! The body of a request that creates an object. Objects of one template share its spec as text, field by field: a template may
//! have a megabyte, and as a tree fifty. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Error, Map, Value};

/// Memory of a value beside its text, in bytes, about.
const VALUE: usize = 64;

/// The fields of a spec, each as the text of its JSON.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    texts: BTreeMap<String, Arc<str>>,
    /// Memory of the spec as a tree, about.
    weight: usize,
}

impl Fields {
    pub(crate) fn of(spec: &Map<String, Value>) -> Self {
        let fields = spec.iter().filter(|(_, value)| !value.is_null());
        let texts = fields.map(|(name, value)| (name.clone(), Arc::from(value.to_string()))).collect();
        Self { texts, weight: fields_weight(spec) }
    }

    /// The value of a field; null if it is missing.
    pub(crate) fn get(&self, name: &str) -> Value {
        self.texts.get(name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The spec as a tree.
    pub(crate) fn value(&self) -> Value {
        self.texts.keys().map(|name| (name.clone(), self.get(name))).collect()
    }

    /// Returns the same fields with this one replaced.
    pub(crate) fn with(&self, name: &str, value: &Value) -> Self {
        let mut fields = self.clone();
        fields.texts.insert(name.to_owned(), Arc::from(value.to_string()));
        fields
    }

    fn length(&self) -> usize {
        self.texts.iter().map(|(name, text)| name.len() + text.len() + 4).sum()
    }
}

/// A new object: its own part, and the part that it shares with others.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    own: Arc<Value>,
    shared: Option<Shared>,
}

#[derive(Debug, Clone)]
struct Shared {
    /// Where in the object the fields are.
    path: &'static [&'static str],
    fields: Arc<Fields>,
}

impl From<Value> for Body {
    fn from(own: Value) -> Self {
        Self { own: Arc::new(own), shared: None }
    }
}

impl Body {
    /// The object `own` with these fields at `path`. A field that `own` has there, too, is as it is in `own`; null leaves it
    /// out.
    pub(crate) fn sharing(own: Value, path: &'static [&'static str], fields: &Arc<Fields>) -> Self {
        Self { own: Arc::new(own), shared: Some(Shared { path, fields: Arc::clone(fields) }) }
    }

    /// The object's own part.
    pub(crate) fn own(&self) -> &Value {
        &self.own
    }

    /// Memory of the object as a tree, in bytes, about.
    pub(crate) fn weight(&self) -> usize {
        weight(&self.own).saturating_add(self.shared.as_ref().map_or(0, |shared| shared.fields.weight))
    }

    /// The JSON of the object.
    ///
    /// # Errors
    /// Errors of `serde_json`: none is known for values.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Error> {
        let Some(shared) = &self.shared else { return serde_json::to_vec(&*self.own) };
        let mut bytes = Vec::with_capacity(shared.fields.length().saturating_add(1024));
        write(&mut bytes, &self.own, shared.path, &shared.fields)?;
        Ok(bytes)
    }

    /// The whole object.
    #[cfg(test)]
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes().unwrap()).unwrap()
    }
}

/// Writes the object `own` with the fields at `path` in it.
fn write(bytes: &mut Vec<u8>, own: &Value, path: &[&str], shared: &Fields) -> Result<(), Error> {
    let own = own.as_object();
    bytes.push(b'{');
    let next = path.split_first();
    for (name, value) in own.into_iter().flatten() {
        let is_next = next.is_some_and(|(next, _)| next == name);
        if is_next || next.is_none() && value.is_null() {
            continue;
        }
        write_name(bytes, name)?;
        serde_json::to_writer(&mut *bytes, value)?;
    }
    if let Some((next, rest)) = next {
        write_name(bytes, next)?;
        write(bytes, own.and_then(|own| own.get(*next)).unwrap_or(&Value::Null), rest, shared)?;
    } else {
        for (name, text) in &shared.texts {
            if own.is_none_or(|own| !own.contains_key(name)) {
                write_name(bytes, name)?;
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
    bytes.push(b'}');
    Ok(())
}

fn write_name(bytes: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    if bytes.last() != Some(&b'{') {
        bytes.push(b',');
    }
    serde_json::to_writer(&mut *bytes, name)?;
    bytes.push(b':');
    Ok(())
}

fn weight(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => fields_weight(fields),
            _ => 0,
        }
}

fn fields_weight(fields: &Map<String, Value>) -> usize {
    fields.iter().map(|(name, inner)| name.len() + weight(inner)).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(spec: &Value) -> Arc<Fields> {
        Arc::new(Fields::of(spec.as_object().unwrap()))
    }

    #[test]
    fn body_has_its_own_fields_and_those_that_it_shares() {
        let fields = fields(&json!({"containers": [{"name": "c\"{"}], "hostname": "a", "subdomain": "s", "x": null}));
        let cases: [(Value, &'static [&'static str], Value); 4] = [
            (
                json!({"kind": "Pod", "spec": {"hostname": "b", "subdomain": null}}),
                &["spec"],
                json!({"kind": "Pod", "spec": {"hostname": "b", "containers": [{"name": "c\"{"}]}}),
            ),
            (
                json!({"spec": {"replicas": 1, "none": null, "template": {"metadata": {}}}, "z": {}}),
                &["spec", "template", "spec"],
                json!({"spec": {"replicas": 1, "none": null, "template": {"metadata": {}, "spec": {
                    "containers": [{"name": "c\"{"}], "hostname": "a", "subdomain": "s"}}}, "z": {}}),
            ),
            (json!({}), &[], json!({"containers": [{"name": "c\"{"}], "hostname": "a", "subdomain": "s"})),
            (json!(null), &["a"], json!({"a": {"containers": [{"name": "c\"{"}], "hostname": "a", "subdomain": "s"}})),
        ];
        for (own, path, wanted) in cases {
            assert_eq!(Body::sharing(own.clone(), path, &fields).value(), wanted, "{own}");
        }
        assert_eq!(Body::from(json!({"a": null})).value(), json!({"a": null}));
    }

    #[test]
    fn bodies_of_one_template_share_its_text() {
        let spec = json!({"env": "x".repeat(1_000_000), "hostname": "a"});
        let fields = fields(&spec);
        let one = Body::sharing(json!({"spec": {"hostname": "b"}}), &["spec"], &fields);
        let other = fields.with("hostname", &json!("c"));
        assert!(Arc::ptr_eq(&fields.texts["env"], &other.texts["env"]), "also where a field is another");
        assert_eq!((other.get("hostname"), other.get("none")), (json!("c"), Value::Null));
        assert!(Arc::ptr_eq(&one.clone().shared.unwrap().fields, &fields));
        assert!((1_000_000..1_001_000).contains(&one.weight()), "{}", one.weight());
    }
}
