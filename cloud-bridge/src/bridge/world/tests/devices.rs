//! Devices that nodes receive.

use super::*;
use crate::bridge::told::groups::device_views;

const DEVICES: Wants =
    Wants { services: false, routes: false, policies: false, devices: true, rules: false, api: false, csi: false };

#[test]
fn d02_a_list_waits_for_the_devices_of_the_node() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.wants("a", DEVICES, None)), ["watch a for a"]);
    assert_eq!(words(&world.seed("a", round, vec![pod("a", "p", &[])], None)), ["set a p uid-p"]);
    let device = |uid: &str| Group::from([(key("Device", "d"), Told::new(object("Device", "d", uid)))]);
    assert_eq!(words(&world.group_present(&device_views("a"), device("1"))), ["set a d 1", "listed a 1"]);
    // Deleted and recreated under its name, moved away, and back.
    assert_eq!(words(&world.group_present(&device_views("a"), device("2"))), ["remove a d 1", "set a d 2"]);
    assert_eq!(words(&world.group_present(&device_views("a"), Group::new())), ["withdraw a d 2"]);
    assert_eq!(words(&world.group_present(&device_views("a"), device("2"))), ["set a d 2"]);
}

#[test]
fn d13_who_wants_no_devices_is_told_none_and_nothing_is_watched() {
    let mut world = world(&["a"]);
    assert!(world.wants("a", Wants::default(), None).is_empty());
    assert_eq!(words(&world.wants("a", DEVICES, None)), ["watch a for a"]);
    assert!(world.wants("a", DEVICES, None).is_empty(), "it says so with each connection");
    let device = Group::from([(key("Device", "d"), Told::new(object("Device", "d", "1")))]);
    let _ = world.group_present(&device_views("a"), device);
    assert_eq!(words(&world.wants("a", Wants::default(), None)), ["withdraw a d 1", "unwatch a"]);
    let _ = world.wants("a", DEVICES, None);
    assert_eq!(words(&world.drop_node("a")), ["unwatch a"]);
}

/// Another site has other Services, but the same devices.
#[test]
fn devices_stay_when_site_or_service_scope_changes() {
    let mut world = world(&["a"]);
    let _ = world.wants("a", DEVICES, None);
    let device = Group::from([(key("Device", "d"), Told::new(object("Device", "d", "1")))]);
    let _ = world.group_present(&device_views("a"), device);
    for (wants, site) in [(ROUTES, None), (ROUTES, Some("hall")), (ROUTES, Some("yard")), (SERVICES, None)] {
        let told = words(&world.wants("a", Wants { devices: true, ..wants }, site));
        assert!(told.iter().all(|word| !word.ends_with(" a d 1")), "{told:?}");
        let interested = words(&world.interested("a", &["x".to_owned()], std::time::Duration::ZERO));
        assert!(interested.iter().all(|word| !word.ends_with(" a d 1")), "{interested:?}");
    }
}

#[test]
fn a_device_that_a_node_holds_is_taken_back_when_it_is_not_its_own() {
    let mut world = world(&["a", "b"]);
    let _ = world.wants("a", DEVICES, None);
    let device = Group::from([(key("Device", "d"), Told::new(object("Device", "d", "1")))]);
    let _ = world.group_present(&device_views("a"), device);
    assert!(world.unlisted("a", &key("Device", "d"), "1").is_empty());
    assert_eq!(words(&world.unlisted("a", &key("Device", "d"), "0")), ["withdraw a d 0"]);
    assert_eq!(words(&world.unlisted("b", &key("Device", "d"), "1")), ["withdraw b d 1"]);
}
