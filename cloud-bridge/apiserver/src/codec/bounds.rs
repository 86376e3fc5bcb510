//! Maximum size of an object that a client writes. One step of the thread checks, compares and encodes it, and patches
//! could make it grow without bound. Pure.

use serde_json::Value;

/// Maximum size of an object as JSON in bytes, approximately: the limit of etcd (`--max-request-bytes`).
pub(crate) const BYTES_MAX: usize = 1536 * 1024;
/// Values in a namespaced object of a built-in kind, which tenants write: a thousand endpoints have some 18,000.
pub(crate) const VALUES_MAX: usize = 20 * 1024;

/// Size of a value with all that is in it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Every object, list, text, number and so on.
    pub(crate) values: usize,
    /// Approximate size as JSON text, in bytes.
    pub(crate) bytes: usize,
}

impl Size {
    /// Measures a value; `None` when it is deeper than `depth`.
    pub(crate) fn of(value: &Value, depth: usize) -> Option<Self> {
        let mut size = Self::default();
        size.add(value, depth).map(|()| size)
    }

    fn add(&mut self, value: &Value, depth: usize) -> Option<()> {
        self.values += 1;
        self.bytes += match value {
            Value::String(text) => text.len() + 3,
            _ => 4,
        };
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item, depth.checked_sub(1)?)),
            Value::Object(map) => map.iter().try_for_each(|(key, inner)| {
                self.bytes += key.len() + 4;
                self.add(inner, depth.checked_sub(1)?)
            }),
            _ => Some(()),
        }
    }

    /// Adds a value without the field at this path.
    fn add_but(&mut self, value: &Value, path: &[&str]) {
        let (Value::Object(map), [name, rest @ ..]) = (value, path) else {
            let _added = self.add(value, usize::MAX);
            return;
        };
        self.values += 1;
        self.bytes += 4;
        for (key, inner) in map {
            match (key == name, rest) {
                (true, []) => continue,
                (true, rest) => self.add_but(inner, rest),
                (false, _) => self.add_but(inner, &[]),
            }
            self.bytes += key.len() + 4;
        }
    }
}

/// Refuses an object that is too large, or has more than `values` values, unless it was as large before: it must be
/// possible to shrink or delete it. Its managedFields have a separate limit: see `patch::budget`.
///
/// # Errors
/// The exceeded limit.
pub(crate) fn within(object: &Value, before: Option<&Value>, values: usize) -> Result<(), String> {
    let now = own(object);
    if now.bytes <= BYTES_MAX && now.values <= values {
        return Ok(());
    }
    let had = before.map(own).unwrap_or_default();
    if now.bytes > BYTES_MAX && now.bytes > had.bytes {
        return Err(format!("the object is too large: limit is {BYTES_MAX} bytes"));
    }
    if now.values > values && now.values > had.values {
        return Err(format!("the object has too many values: limit is {values}"));
    }
    Ok(())
}

/// Values of an object without its managedFields.
pub(crate) fn values(object: &Value) -> usize {
    own(object).values
}

/// Bytes of an object without its managedFields.
pub(crate) fn bytes(object: &Value) -> usize {
    own(object).bytes
}

/// The size of an object without its managedFields.
fn own(object: &Value) -> Size {
    let mut size = Size::default();
    size.add_but(object, &["metadata", "managedFields"]);
    size
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_and_key_counts() {
        assert_eq!(Size::of(&json!({"a": ["xyz", 1]}), 2), Some(Size { values: 4, bytes: 4 + 5 + 4 + 6 + 4 }));
        assert_eq!(Size::of(&json!({"a": ["xyz", 1]}), 1), None);
    }

    #[test]
    fn large_objects_are_refused() {
        let of = |bytes: usize| json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(bytes)}});
        assert_eq!(within(&of(BYTES_MAX - 100), None, VALUES_MAX), Ok(()));
        let refused = within(&of(BYTES_MAX), Some(&of(BYTES_MAX - 1)), VALUES_MAX);
        assert_eq!(refused.unwrap_err(), "the object is too large: limit is 1572864 bytes");
        assert_eq!(within(&of(BYTES_MAX), Some(&of(BYTES_MAX)), VALUES_MAX), Ok(()), "it was as large");
    }

    #[test]
    fn objects_of_many_values_are_refused() {
        let fields = |count: usize| -> Value {
            (0..count).map(|at| (format!("k{at}"), json!({}))).collect::<serde_json::Map<_, _>>().into()
        };
        assert_eq!(within(&json!({"data": fields(VALUES_MAX - 2)}), None, VALUES_MAX), Ok(()));
        let more = json!({"data": fields(VALUES_MAX - 1)});
        assert!(within(&more, None, VALUES_MAX).is_err(), "managedFields that are not there count for nothing");
        let many = json!({"data": fields(VALUES_MAX)});
        assert_eq!(within(&many, None, VALUES_MAX).unwrap_err(), "the object has too many values: limit is 20480");
        assert_eq!(within(&many, None, usize::MAX), Ok(()));
        assert_eq!(within(&many, Some(&many), VALUES_MAX), Ok(()), "finalizers of it can go");
    }

    #[test]
    fn managed_fields_do_not_count() {
        let owners = json!([{"manager": "x".repeat(BYTES_MAX), "fieldsV1": vec![1; VALUES_MAX]}]);
        let with = |owners: &Value| json!({"metadata": {"managedFields": owners, "name": "a"}, "managedFields": [1]});
        assert_eq!(within(&with(&owners), None, VALUES_MAX), Ok(()));
        assert_eq!(own(&with(&owners)), own(&with(&Value::Null)));
        assert_eq!(own(&with(&owners)).values, 5, "others of this name do");
    }
}
