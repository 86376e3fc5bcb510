//! Ranges of user ids.

use super::*;

#[test]
fn the_ids_of_the_node() {
    assert_eq!(Ids::given("pi:100000:65536\n", "", 110), Ok(Ids { first: 65_536, pods: 110 }));
    let own = "pi:1:2\nkubelet:131072:196608\n";
    assert_eq!(Ids::given(own, own, 110), Ok(Ids { first: 131_072, pods: 3 }));
    assert!(Ids::given(own, "", 110).unwrap_err().contains("/etc/subgid"));
    for wrong in ["kubelet:0:65536", "kubelet:65537:65536", "kubelet:65536:65535", "kubelet:x"] {
        assert!(Ids::given(wrong, wrong, 110).unwrap_err().contains(wrong), "{wrong}");
    }
}

#[test]
fn a_closed_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let told = closed_door(&dir.path().join("run/edge-runtime")).unwrap_err().to_string();
    assert!(told.starts_with(&dir.path().display().to_string()) && told.ends_with("chmod o+x"), "{told}");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
    closed_door(&dir.path().join("run")).unwrap();
}

#[test]
fn a_range_is_one_pods_and_stays_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    let ids = Ids { first: 131_072, pods: 2 };
    for uid in ["a", "b", "c"] {
        fs::create_dir_all(paths.pod(uid)).unwrap();
    }
    assert_eq!(first_id(&paths, "a", ids).unwrap(), 131_072);
    assert_eq!(first_id(&paths, "b", ids).unwrap(), 196_608);
    assert_eq!(first_id(&paths, "a", ids).unwrap(), 131_072, "again");
    assert!(first_id(&paths, "c", ids).unwrap_err().to_string().contains("all 2 ranges"));
    fs::remove_dir_all(paths.pod("a")).unwrap();
    assert_eq!(first_id(&paths, "c", ids).unwrap(), 131_072);
    assert_eq!(kept(&paths.pod("c")), Some(131_072));
    assert_eq!(Ids { first: u32::MAX - IDS + 1, pods: 9 }.free(&BTreeSet::new()), None);
}
