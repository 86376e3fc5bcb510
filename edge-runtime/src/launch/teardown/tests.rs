//! What stays of a pod whose processes do not end.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::{ConfigFile, Overrides};
use crate::launch::devices::kept::{Allocation, Kept};

fn config(root: &Path) -> Rc<Config> {
    let file = Path::new("config.yaml");
    let overrides = Overrides { node_name: Some("n".to_owned()), joined: None };
    Rc::new(Config::from_file(ConfigFile::parse("", file).unwrap(), file, root, &overrides).unwrap())
}

#[test]
fn folder_with_allocations_stays_as_long_as_the_cgroup() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, mount) = (Paths::new(dir.path()), dir.path().join("cgroup"));
    let teardown = Teardown::of(Base::new(&paths, config(dir.path()), Cgroups::at(&mount))).unwrap();
    let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"containers": []}})).unwrap();
    let cgroup = mount.join(teardown.base.cgroups.pod_path(class(&pod), "u").trim_start_matches('/'));
    // A file stands for a process: with either the folder cannot be removed.
    let process = cgroup.join("process");
    for folder in [&cgroup, &paths.pod("u")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(&process, "").unwrap();
    let mut kept = Kept::default();
    let (uid, container, resource) = ("u".to_owned(), "c".to_owned(), "example.com/gpu".to_owned());
    let edits = json!({"env": [], "mounts": [], "devices": [], "annotations": []});
    kept.put(Allocation { uid, container, resource, ids: vec!["0".to_owned()], pre_start: false, edits });
    kept.save(&paths).unwrap();

    let busy = teardown.pod(&pod, "u", true).unwrap_err();
    assert!(busy.starts_with("cgroup: ") && busy.ends_with(" is busy"), "{busy}");
    assert!(teardown.has_cgroup_of("u") && Kept::load(&paths).has("u"));
    fs::remove_file(process).unwrap();
    teardown.pod(&pod, "u", true).unwrap();
    assert!(!teardown.has_cgroup_of("u") && !Kept::load(&paths).has("u"));
    assert!(paths.pod("u").is_dir(), "until the logs go");
}
