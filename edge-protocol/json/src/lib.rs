//! Changes fields of JSON with an untrusted shape. Knows nothing of what the fields mean.
//!
//! `value["a"] = x` and `value["a"].take()` panic unless `value` is an object or null, so one message of the wrong
//! shape would end the program. A test in `sampan-tests` keeps both out of the sources.

use serde_json::{Map, Value};

/// Fields of an object, set without a panic.
pub trait SetField {
    /// Sets a field. Null becomes an object first; any other value that is not an object stays unchanged.
    fn set(&mut self, key: &str, value: Value);

    /// Same as [`SetField::set`] at the end of a path; missing or null objects on the way are created. If another value
    /// is in the way, nothing is set.
    fn set_at(&mut self, path: &[&str], value: Value);

    /// The value at this path, mutable; `None` if a part is missing or is not an object.
    fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value>;

    /// Takes the value at this path and leaves null in its place; null if it does not exist.
    fn take_at(&mut self, path: &[&str]) -> Value;
}

impl SetField for Value {
    fn set(&mut self, key: &str, value: Value) {
        if self.is_null() {
            *self = Self::Object(Map::new());
        }
        if let Some(map) = self.as_object_mut() {
            map.insert(key.to_owned(), value);
        }
    }

    fn set_at(&mut self, path: &[&str], value: Value) {
        let Some((key, above)) = path.split_last() else { return };
        let mut object = self;
        for part in above {
            if object.is_null() {
                *object = Self::Object(Map::new());
            }
            let Some(map) = object.as_object_mut() else { return };
            object = map.entry(*part).or_insert(Self::Null);
        }
        object.set(key, value);
    }

    fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter().try_fold(self, |object, part| object.get_mut(*part))
    }

    fn take_at(&mut self, path: &[&str]) -> Value {
        self.at_mut(path).map_or(Self::Null, Self::take)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_set_where_there_is_an_object_or_nothing() {
        let mut value = json!({"a": {"b": 1}, "n": null});
        value.set("c", json!(2));
        value.set_at(&["a", "b"], json!(3));
        value.set_at(&["n", "x", "y"], json!(4));
        assert_eq!(value, json!({"a": {"b": 3}, "n": {"x": {"y": 4}}, "c": 2}));
        assert_eq!(value.take_at(&["a", "b"]), json!(3));
        assert_eq!(value.take_at(&["a", "nothing"]), Value::Null);
        assert_eq!(value["a"], json!({"b": null}));
    }

    #[test]
    fn values_of_other_types_are_left_alone() {
        for wrong in [json!([]), json!([1]), json!("x"), json!(1), json!(true)] {
            let mut value = wrong.clone();
            value.set("a", json!(1));
            value.set_at(&["a", "b"], json!(1));
            assert_eq!(value.take_at(&["a"]), Value::Null);
            assert_eq!(value, wrong);
            let mut outer = json!({ "spec": wrong });
            outer.set_at(&["spec", "nodeName"], json!("n"));
            assert_eq!(outer, json!({ "spec": wrong }));
        }
    }
}
