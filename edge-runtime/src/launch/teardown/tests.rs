//! What stays of a pod whose processes do not end.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::{ConfigFile, Overrides};
use crate::launch::Launch;
use crate::launch::devices::kept::{Allocation, Kept};

fn config(text: &str, root: &Path) -> Rc<Config> {
    let file = Path::new("config.yaml");
    let overrides = Overrides { node_name: Some("n".to_owned()), joined: None };
    Rc::new(Config::from_file(ConfigFile::parse(text, file).unwrap(), file, root, &overrides).unwrap())
}

fn pod() -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"containers": []}})).unwrap()
}

/// Makes the folder of pod `u`, and its cgroup with a file that stands for a process: with either a cgroup cannot be removed.
fn process(cgroups: &Cgroups, mount: &Path, paths: &Paths) -> PathBuf {
    let cgroup = mount.join(cgroups.pod_path(class(&pod()), "u").trim_start_matches('/'));
    for folder in [&cgroup, &paths.pod("u")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(cgroup.join("process"), "").unwrap();
    cgroup.join("process")
}

#[test]
fn folder_with_allocations_stays_as_long_as_the_cgroup() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, mount) = (Paths::new(dir.path()), dir.path().join("cgroup"));
    let teardown = Teardown::of(Base::new(&paths, config("", dir.path()), Cgroups::at(&mount))).unwrap();
    let process = process(&teardown.base.cgroups, &mount, &paths);
    let mut kept = Kept::default();
    let (uid, container, resource) = ("u".to_owned(), "c".to_owned(), "example.com/gpu".to_owned());
    let edits = json!({"env": [], "mounts": [], "devices": [], "annotations": []});
    kept.put(Allocation { uid, container, resource, ids: vec!["0".to_owned()], pre_start: false, edits });
    kept.save(&paths).unwrap();

    let busy = teardown.pod(&pod(), "u", true).unwrap_err();
    assert!(busy.starts_with("cgroup: ") && busy.ends_with(" is busy"), "{busy}");
    assert!(teardown.has_cgroup_of("u") && Kept::load(&paths).has("u"));
    fs::remove_file(process).unwrap();
    teardown.pod(&pod(), "u", true).unwrap();
    assert!(!teardown.has_cgroup_of("u") && !Kept::load(&paths).has("u"));
    assert!(paths.pod("u").is_dir(), "until the logs go");
}

#[test]
fn devices_of_the_configuration_are_free_after_the_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, mount) = (Paths::new(dir.path()), dir.path().join("cgroup"));
    let config = config("devices: {example.com/null: [/dev/null]}\n", dir.path());
    let process = process(&Cgroups::at(&mount), &mount, &paths);
    let file = paths.pod("u").join("devices.json");
    fs::write(&file, json!({"c": {"example.com/null": ["/dev/null"]}}).to_string()).unwrap();
    let mut launch = Launch::with_cgroups(&paths, config, Cgroups::at(&mount));
    assert!(launch.teardown(&pod(), "u", false).is_err() && file.exists());
    fs::remove_file(process).unwrap();
    launch.teardown(&pod(), "u", false).unwrap();
    assert!(!file.exists() && paths.pod("u").exists());
}
