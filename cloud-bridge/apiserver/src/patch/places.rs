//! Where the paths of field sets lead in an object. Lists of strangers are long, and so are their sets: each list is looked
//! through once, not once for each path.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::fields::{Path, element};

/// What a step `k:` or `v:` is looked up by: the keys that it names, and the element as text.
fn wanted(kind: &str, text: &str) -> Option<(Vec<String>, String)> {
    let value: Value = serde_json::from_str(text).ok()?;
    let keys: Vec<String> = match (kind, &value) {
        ("k", Value::Object(keys)) => keys.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let name = if keys.is_empty() { format!("v:{value}") } else { element(&value, &keys) };
    Some((keys, name))
}

/// A list in an object by its address, and the keys by which its elements are told apart.
type List = (*const Value, Vec<String>);

/// Looks paths up in one object.
pub(crate) struct Places<'a> {
    object: &'a Value,
    lists: RefCell<HashMap<List, HashMap<String, usize>>>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(object: &'a Value) -> Self {
        Self { object, lists: RefCell::default() }
    }

    /// The value at a path.
    pub(crate) fn at(&self, path: &[String]) -> Option<&'a Value> {
        path.iter().try_fold(self.object, |value, step| match step.split_once(':') {
            _ if step == "." => Some(value),
            Some(("f", name)) => value.get(name),
            Some((kind, text)) => {
                let (keys, name) = wanted(kind, text)?;
                self.element(value.as_array()?, keys, &name)
            }
            None => None,
        })
    }

    fn element(&self, list: &'a [Value], keys: Vec<String>, name: &str) -> Option<&'a Value> {
        let mut lists = self.lists.borrow_mut();
        let known = lists.entry((list.as_ptr(), keys)).or_insert_with_key(|(_, keys)| {
            let mut places = HashMap::with_capacity(list.len());
            for (place, item) in list.iter().enumerate() {
                places.entry(element(item, keys)).or_insert(place);
            }
            places
        });
        list.get(*known.get(name)?)
    }
}

/// Paths as a tree.
#[derive(Default)]
struct Tree {
    /// A path ends here.
    ends: bool,
    fields: BTreeMap<String, Tree>,
    /// By the keys that name them.
    elements: BTreeMap<Vec<String>, HashMap<String, Tree>>,
}

impl Tree {
    fn add(&mut self, path: &[String]) {
        let Some((step, rest)) = path.split_first().filter(|(step, _)| *step != ".") else {
            self.ends = true;
            return;
        };
        let next = match step.split_once(':') {
            Some(("f", name)) => self.fields.entry(name.to_owned()).or_default(),
            Some((kind, text)) => {
                let Some((keys, name)) = wanted(kind, text) else { return };
                self.elements.entry(keys).or_default().entry(name).or_default()
            }
            None => return,
        };
        next.add(rest);
    }

    fn remove_from(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, inner) in &self.fields {
                    if inner.ends {
                        map.remove(name);
                    } else if let Some(value) = map.get_mut(name) {
                        inner.remove_from(value);
                    }
                }
            }
            Value::Array(items) => {
                let mut seen = BTreeSet::new();
                items.retain_mut(|item| {
                    self.elements.iter().all(|(keys, named)| {
                        let name = element(item, keys);
                        let Some(inner) = named.get(&name) else { return true };
                        // What is within an element is taken from the first of its name alone.
                        if !inner.ends && seen.insert((keys, name)) {
                            inner.remove_from(item);
                        }
                        !inner.ends
                    })
                });
            }
            _ => {}
        }
    }
}

/// Removes the values at these paths.
pub(crate) fn remove<'p>(object: &mut Value, paths: impl IntoIterator<Item = &'p Path>) {
    let mut tree = Tree::default();
    paths.into_iter().for_each(|path| tree.add(path));
    if !tree.ends {
        tree.remove_from(object);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(steps: &[&str]) -> Path {
        steps.iter().map(|step| (*step).to_owned()).collect()
    }

    #[test]
    fn paths_lead_to_what_they_name() {
        let object = json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 1, "protocol": "UDP"}, {"port": 1, "name": "b"}],
            "words": ["x", 1, "y"]}});
        let places = Places::new(&object);
        let at = |steps: &[&str]| places.at(&path(steps)).cloned();
        let port = "k:{\"port\":1,\"protocol\":\"TCP\"}";
        assert_eq!(at(&["f:spec", "f:ports", port, "f:name"]), Some(json!("a")), "the first of several");
        assert_eq!(at(&["f:spec", "f:ports", "k:{\"protocol\":\"UDP\", \"port\":1}", "."]).unwrap()["protocol"], "UDP");
        assert_eq!(at(&["f:spec", "f:words", "v:1"]), Some(json!(1)));
        for nowhere in
            [&["f:spec", "f:words", "v:\"1\""][..], &["f:spec", "f:ports", "k:{\"port\":2}"], &["x"], &["f:a"]]
        {
            assert_eq!(at(nowhere), None, "{nowhere:?}");
        }
        assert_eq!(at(&["f:spec", "k:{"]), None);
    }

    #[test]
    fn what_is_removed_is_what_paths_name() {
        let mut object = json!({"a": [{"name": "x", "v": 1, "w": 1}, {"name": "y", "v": 1}, {"name": "z"}], "s": ["p", "q", "p"],
            "m": {"k": 1, "l": {"deep": 1}}});
        let paths = [
            path(&["f:a", "k:{\"name\":\"x\"}", "f:v"]),
            path(&["f:a", "k:{\"name\":\"y\"}", "."]),
            path(&["f:s", "v:\"p\""]),
            path(&["f:m", "f:l", "f:deep"]),
            path(&["f:m", "f:none"]),
            path(&["f:s", "k:1", "f:x"]),
            path(&[]),
        ];
        remove(&mut object, &paths[..6]);
        assert_eq!(object, json!({"a": [{"name": "x", "w": 1}, {"name": "z"}], "s": ["q"], "m": {"k": 1, "l": {}}}));
        remove(&mut object, &paths);
        assert_eq!(object["s"], json!(["q"]), "the object itself is never removed");
    }

    #[test]
    fn long_lists_are_looked_through_once() {
        let list: Vec<Value> = (0..20_000).map(|at| json!({"name": format!("n{at}")})).collect();
        let steps = |at: usize| path(&["f:list", &format!("k:{{\"name\":\"n{at}\"}}"), "f:name"]);
        let mut object = json!({"list": list});
        let started = std::time::Instant::now();
        let places = Places::new(&object);
        assert!((0..20_000).all(|at| places.at(&steps(at)).is_some()));
        let all: Vec<Path> = (0..20_000).map(steps).collect();
        remove(&mut object, &all);
        assert!(object["list"].as_array().unwrap().iter().all(|one| one == &json!({})));
        assert!(started.elapsed().as_secs() < 4, "{:?}", started.elapsed());
    }
}
