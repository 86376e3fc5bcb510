//! Tests of the index.

use serde_json::json;

use super::followed::Index as _;
use super::*;

fn device(index: &mut Index, name: &str, uid: &str, node: &str, model: &str) {
    let spec = json!({"nodeName": node, "deviceModelRef": {"name": model}});
    let object = json!({"metadata": {"namespace": "ns", "name": name, "uid": uid}, "spec": spec});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    index.set_device(of(name), Device::of(&object));
}

fn model(index: &mut Index, name: &str, protocol: &str) {
    let metadata = json!({"namespace": "ns", "name": name, "uid": format!("u-{name}")});
    let object: DynamicObject =
        serde_json::from_value(json!({"metadata": metadata, "spec": {"protocol": protocol}})).unwrap();
    index.set_model(of(name), Model::of(&object));
}

fn of(name: &str) -> Name {
    ("ns".to_owned(), name.to_owned())
}

fn held(index: &Index, node: &str) -> Vec<String> {
    index.group(node).values().map(|told| format!("{} {}", told.digest.key.name, told.digest.uid)).collect()
}

fn changed(index: &mut Index) -> Vec<String> {
    index.take_changed().iter().map(ToString::to_string).collect()
}

#[test]
fn the_order_of_devices_and_models_does_not_matter() {
    let (mut one, mut other) = (Index::default(), Index::default());
    device(&mut one, "d", "1", "a", "m");
    assert_eq!(held(&one, "a"), ["d 1"]);
    assert_eq!(changed(&mut one), ["a"]);
    model(&mut one, "m", "p");
    assert_eq!(changed(&mut one), ["a"]);
    model(&mut other, "m", "p");
    assert!(changed(&mut other).is_empty(), "nobody names it");
    device(&mut other, "d", "1", "a", "m");
    assert_eq!(held(&one, "a"), ["d 1", "m u-m"]);
    assert_eq!(held(&one, "a"), held(&other, "a"));
}

#[test]
fn a_device_that_moves_goes_from_the_old_node_with_its_model() {
    let mut index = Index::default();
    model(&mut index, "m", "p");
    device(&mut index, "d", "1", "a", "m");
    device(&mut index, "e", "2", "a", "m");
    let _ = index.take_changed();
    device(&mut index, "d", "1", "b", "m");
    assert_eq!(changed(&mut index), ["a", "b"]);
    assert_eq!(
        (held(&index, "a"), held(&index, "b")),
        (vec!["e 2".into(), "m u-m".into()], vec!["d 1".into(), "m u-m".into()])
    );
    device(&mut index, "e", "2", "b", "m");
    assert!(held(&index, "a").is_empty(), "the last that named it has gone");
    assert!(!index.of_node.contains_key("a"));
}

#[test]
fn what_says_the_same_changes_nothing() {
    let mut index = Index::default();
    model(&mut index, "m", "p");
    device(&mut index, "d", "1", "a", "m");
    let _ = index.take_changed();
    model(&mut index, "m", "p");
    device(&mut index, "d", "1", "a", "m");
    let (devices, models) = (index.devices.clone(), index.models.clone());
    index.list_devices(devices);
    index.list_models(models);
    assert!(!index.is_changed());
    model(&mut index, "m", "q");
    assert_eq!(changed(&mut index), ["a"]);
}

#[test]
fn a_list_is_all_there_is() {
    let mut index = Index::default();
    model(&mut index, "m", "p");
    device(&mut index, "d", "1", "a", "m");
    device(&mut index, "e", "2", "b", "");
    let _ = index.take_changed();
    index.list_devices(BTreeMap::new());
    index.list_models(BTreeMap::new());
    assert_eq!(changed(&mut index), ["a", "b"]);
    assert!(index.group("a").is_empty() && index.device(&of("d")).is_none());
    assert!(index.of_node.is_empty() && index.of_model.is_empty());
}

/// A new Device with the name of an old one: the old one is removed, by its uid.
#[test]
fn a_device_made_anew_is_another() {
    let mut index = Index::default();
    device(&mut index, "d", "1", "a", "m");
    device(&mut index, "d", "2", "a", "m");
    assert_eq!(held(&index, "a"), ["d 2"]);
    index.set_device(of("d"), None);
    assert!(held(&index, "a").is_empty());
}
