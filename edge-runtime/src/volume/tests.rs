//! Real volumes in a mount namespace of the test's own, and the hard question: does tear-down spare what is not ours?
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::mounts::{Mount, MountContext, Propagation, container_mounts};
use super::*;
use crate::paths::Paths;
use crate::sys::files::mounts_below;

struct Bench {
    temp: tempfile::TempDir,
    paths: Paths,
    pod: Pod,
    facts: DownwardFacts,
    objects: std::cell::RefCell<BTreeMap<String, Value>>,
}

impl Bench {
    /// Returns `None` without root, and prints that.
    fn new(spec: Value) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root to mount");
            return None;
        }
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
        let temp = tempfile::tempdir().unwrap();
        // The node's root lies behind a link, as /var does on some systems.
        fs::create_dir(temp.path().join("real")).unwrap();
        symlink("real", temp.path().join("root")).unwrap();
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        let pod = json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}},
            "spec": spec});
        Some(Self {
            paths: Paths::new(&temp.path().join("root")),
            temp,
            pod: serde_json::from_value(pod).unwrap(),
            facts: DownwardFacts { allocatable_memory_bytes: 64 << 20, ..DownwardFacts::default() },
            objects: std::cell::RefCell::default(),
        })
    }

    fn put(&self, kind: &str, name: &str, data: Value) {
        self.objects.borrow_mut().insert(format!("{kind}/shop/{name}"), data);
    }

    fn with<T>(&self, work: impl FnOnce(&VolumeContext<'_>) -> T) -> T {
        let objects = |kind: &str, namespace: &str, name: &str| {
            self.objects.borrow().get(&format!("{kind}/{namespace}/{name}")).cloned()
        };
        let uses_local_api = crate::pod::local_api::is_used(&self.pod, false);
        work(&VolumeContext {
            paths: &self.paths,
            pod: &self.pod,
            objects: &objects,
            facts: &self.facts,
            uses_local_api,
        })
    }

    fn setup(&self) -> Result<BTreeMap<String, VolumeHostPath>, VolumeError> {
        let made = self.with(|ctx| {
            look::looks(ctx).iter().try_for_each(look::Look::run)?;
            setup(ctx)
        })?;
        Ok(made.iter().map(|(name, volume)| (name.clone(), volume.clone())).collect())
    }

    fn mounts(&self) -> Result<Vec<Mount>, VolumeError> {
        let volumes: VecMap<String, VolumeHostPath> = self.setup().unwrap().into_iter().collect();
        let containers: &[Container] = &self.pod.spec.as_ref().unwrap().containers;
        let (mounts, looks) = container_mounts(&MountContext {
            paths: &self.paths,
            pod: &self.pod,
            container: &containers[0],
            volumes: &volumes,
            env: &|name| (name == "POD").then(|| "web-0".to_string()),
            pod_files: Path::new("/files"),
            termination_log: Path::new("/termination"),
            recursive_read_only: false,
        })?;
        looks.iter().try_for_each(look::Look::run)?;
        Ok(mounts)
    }

    fn mount_of(&self, target: &str) -> Mount {
        self.mounts().unwrap().into_iter().find(|mount| mount.target == Path::new(target)).unwrap()
    }

    fn mount_count(&self) -> usize {
        mounts_below(&fs::canonicalize(self.temp.path()).unwrap()).unwrap().len()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn objects_become_files_and_follow_their_changes() {
    let volumes = json!({"volumes": [
        {"name": "cfg", "configMap": {"name": "app", "defaultMode": 0o600}},
        {"name": "key", "secret": {"secretName": "tls", "items": [{"key": "k", "path": "deep/er/key", "mode": 0o400}]}},
        {"name": "me", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "app"}}, {"secret": {"name": "tls"}},
            {"configMap": {"name": "none", "optional": true}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}]});
    let Some(mut bench) = Bench::new(volumes) else { return };
    bench.put("ConfigMap", "app", json!({"data": {"a": "1"}, "binaryData": {"bin": "AP8="}}));
    bench.put("Secret", "tls", json!({"data": {"k": "c2VjcmV0"}}));
    let made = bench.setup().unwrap();
    assert!(made.values().all(|volume| volume.read_only));
    let read = |name: &str, file: &str| fs::read(made[name].path.join(file)).unwrap();
    assert_eq!(read("cfg", "a"), b"1");
    assert_eq!(read("cfg", "bin"), [0, 255]);
    assert_eq!(mode(&made["cfg"].path.join("a")), 0o600);
    assert_eq!(read("key", "deep/er/key"), b"secret");
    assert_eq!(mode(&made["key"].path.join("deep/er/key")), 0o400);
    assert_eq!(read("me", "labels"), b"app=\"web\"");
    assert_eq!((read("all", "a"), read("all", "k"), read("all", "name")), (b"1".into(), b"secret".into(), b"p".into()));
    assert_eq!(bench.mount_count(), 1, "one tmpfs for all");

    assert!(bench.with(update).unwrap().is_empty());
    bench.put("ConfigMap", "app", json!({"data": {"a": "2"}}));
    bench.pod.metadata.labels.as_mut().unwrap().insert("x".into(), "y".into());
    assert_eq!(bench.with(update).unwrap(), ["cfg", "me", "all"]);
    assert_eq!(read("cfg", "a"), b"2");
    assert!(!made["cfg"].path.join("bin").exists());

    // Gone while the pod runs: the files stay, also for a setup after a restart of the daemon.
    bench.objects.borrow_mut().clear();
    assert!(bench.with(update).unwrap().is_empty());
    assert_eq!(bench.setup().unwrap(), made);
    assert_eq!(read("key", "deep/er/key"), b"secret");
    teardown(&bench.paths, "u1").unwrap();
    assert_eq!(bench.mount_count(), 0);
}

#[test]
fn missing_object_is_named_and_waited_for() {
    let volumes = json!({"volumes": [{"name": "cfg", "configMap": {"name": "app", "items": [{"key": "k", "path": "k"}]}},
        {"name": "tmp", "emptyDir": {}}]});
    let Some(bench) = Bench::new(volumes) else { return };
    let error = bench.setup().unwrap_err();
    assert!(error.is_missing());
    assert_eq!(error.to_string(), "MountVolume.SetUp failed for volume \"cfg\" : configmap \"app\" not found");
    assert!(!bench.paths.pod("u1").join("volumes").exists(), "nothing is made before all is known");
    bench.put("ConfigMap", "app", json!({"data": {}}));
    let error = bench.setup().unwrap_err();
    assert!(error.is_missing() && error.to_string().ends_with("references non-existent configmap key: k"), "{error}");
    bench.put("ConfigMap", "app", json!({"data": {"k": "v"}}));
    bench.setup().unwrap();
    teardown(&bench.paths, "u1").unwrap();
}

#[test]
fn g29_optional_secret_in_memory_is_waited_for() {
    let volumes = json!({"volumes": [{"name": "key", "secret": {"secretName": "tls", "optional": true}}]});
    let Some(bench) = Bench::new(volumes) else { return };
    bench.put("Secret", "tls", Value::Null);
    let error = bench.setup().unwrap_err();
    assert!(error.is_missing() && error.to_string().contains("security.secrets-in-memory"), "{error}");
    bench.put("Secret", "tls", json!({"data": {"k": "c2VjcmV0"}}));
    let made = bench.setup().unwrap();
    // The daemon was restarted and knows no body: what is mounted stays.
    bench.put("Secret", "tls", Value::Null);
    assert_eq!(bench.setup().unwrap(), made);
    assert!(bench.with(update).unwrap().is_empty());
    assert_eq!(fs::read(made["key"].path.join("k")).unwrap(), b"secret");
    teardown(&bench.paths, "u1").unwrap();
}

#[test]
fn unsupported_volume_is_named() {
    let cases = [
        (json!({"name": "v", "csi": {"driver": "d.example.com"}}), "csi"),
        (json!({"name": "v", "nfs": {"server": "a", "path": "/"}}), "nfs"),
        (json!({"name": "v", "emptyDir": {"medium": "HugePages"}}), "emptyDir with medium \"HugePages\""),
        (json!({"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}}), "clusterTrustBundle"),
    ];
    for (volume, name) in cases {
        let Some(bench) = Bench::new(json!({"volumes": [volume]})) else { return };
        let error = bench.setup().unwrap_err();
        assert!(matches!(error, VolumeError::NotSupported { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.ends_with("is not supported by this node"), "{text}");
    }
}

#[test]
fn pod_of_the_local_api_trusts_its_certificate() {
    let sources = |with_token: bool| {
        let token = json!({"serviceAccountToken": {"path": "token"}});
        let ca = json!({"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}});
        json!({"volumes": [{"name": "t", "projected": {"sources": if with_token { vec![token, ca] } else { vec![ca] }}}]})
    };
    let own = "LocalApiCertificate//";
    for (annotation, with_token, wanted) in
        [(true, true, Some("CA\nOWN\n")), (true, false, Some("CA")), (false, true, Some("CA")), (true, true, None)]
    {
        let Some(mut bench) = Bench::new(sources(with_token)) else { return };
        bench.put("ConfigMap", "kube-root-ca.crt", json!({"data": {"ca.crt": "CA"}}));
        bench.objects.borrow_mut().insert("ServiceAccountToken/u1/3600/".into(), json!({"token": "t"}));
        if annotation {
            let annotations = [("sampan.dev/local-api".to_owned(), "true".to_owned())];
            bench.pod.metadata.annotations = Some(annotations.into());
        }
        let Some(wanted) = wanted else {
            let error = bench.setup().unwrap_err();
            assert!(error.is_missing() && error.to_string().contains("edge-api has not started"), "{error}");
            continue;
        };
        bench.objects.borrow_mut().insert(own.into(), json!("OWN\n"));
        let dir = bench.setup().unwrap()["t"].path.clone();
        assert_eq!(fs::read_to_string(dir.join("ca.crt")).unwrap(), wanted, "{annotation} {with_token}");
        bench.objects.borrow_mut().insert(own.into(), json!("OTHER\n"));
        let changes = bench.with(update).unwrap();
        assert_eq!(!changes.is_empty(), wanted.contains("OWN"), "{annotation} {with_token}");
        teardown(&bench.paths, "u1").unwrap();
    }
}

#[test]
fn token_files_are_closed_to_all_but_their_user() {
    let volumes = |security: Value| {
        json!({"securityContext": security, "volumes": [{"name": "t", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt"}}]}}]})
    };
    for (security, uid, gid, expected) in [
        (json!({}), 0, 0, 0o644),
        (json!({"runAsUser": 1000}), 1000, 0, 0o600),
        (json!({"runAsUser": 1000, "fsGroup": 2000}), 1000, 2000, 0o640),
        (json!({"fsGroup": 2000}), 0, 2000, 0o640),
    ] {
        let Some(bench) = Bench::new(volumes(security)) else { return };
        bench.put("ConfigMap", "kube-root-ca.crt", json!({"data": {"ca.crt": "CA"}}));
        let error = bench.setup().unwrap_err();
        assert!(error.is_missing() && error.to_string().ends_with("failed to fetch token"), "{error}");
        let token = |text: &str| {
            bench.objects.borrow_mut().insert("ServiceAccountToken/u1/3607/".into(), json!({"token": text}));
        };
        token("first");
        let dir = bench.setup().unwrap()["t"].path.clone();
        let file = fs::metadata(dir.join("token")).unwrap();
        assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (uid, gid, expected));
        assert_eq!(fs::metadata(dir.join("ca.crt")).unwrap().uid(), 0);
        token("second");
        assert_eq!(bench.with(update).unwrap(), ["t"]);
        assert_eq!(fs::read_to_string(dir.join("token")).unwrap(), "second");
        assert_eq!(fs::metadata(dir.join("token")).unwrap().mode() & 0o7777, expected);
        teardown(&bench.paths, "u1").unwrap();
    }
}

#[test]
fn claims_become_folders_of_this_node() {
    let spec = json!({"securityContext": {"fsGroup": 2000}, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let Some(bench) = Bench::new(spec) else { return };
    let error = bench.setup().unwrap_err().to_string();
    assert!(error.ends_with("error processing PVC shop/data: failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found"), "{error}");
    let folder = bench.temp.path().join("disk");
    let claim = |volume: Value| {
        bench.put("PersistentVolumeClaim", "data", json!({"metadata": {"uid": "c1"}, "spec": {}, "volume": volume}));
    };
    let refused = |why: &str| {
        let error = bench.setup().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    claim(Value::Null);
    refused("PVC is not bound");
    let local = |more: Value| {
        let mut spec = json!({"local": {"path": folder}, "claimRef": {"uid": "c1"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim(json!({"name": "pv-1", "spec": spec}));
    };
    local(json!({}));
    refused("does not exist");
    fs::create_dir_all(folder.join("old")).unwrap();
    fs::create_dir_all(bench.paths.pod("u1")).unwrap();
    fs::write(folder.join("old/file"), "x").unwrap();
    symlink("/etc/passwd", folder.join("link")).unwrap();
    let before = fs::metadata("/etc/passwd").unwrap();
    assert_eq!(bench.setup().unwrap()["v"].path, folder);
    let file = fs::metadata(folder.join("old/file")).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o7777), (2000, 0o664));
    assert_eq!(mode(&folder.join("old")), 0o2775);
    let after = fs::metadata("/etc/passwd").unwrap();
    assert_eq!((before.gid(), before.mode()), (after.gid(), after.mode()), "links are not followed");
    local(json!({"claimRef": {"uid": "other"}}));
    refused("is bound to another claim");
    local(json!({"volumeMode": "Block"}));
    refused("persistentVolumeClaim with volumeMode Block is not supported by this node");
    local(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]}]}]}}}));
    refused("MountVolume.NodeAffinity check failed for volume \"pv-1\" : no matching NodeSelectorTerms");
    claim(json!({"name": "pv-1", "spec": {"csi": {"driver": "d.example.com", "volumeHandle": "h"}}}));
    refused("persistentVolumeClaim of a csi (d.example.com) volume is not supported by this node");
    claim(json!({"name": "pv-1", "spec": {"hostPath": {"path": folder, "type": "File"}}}));
    refused("is not a file");
    claim(json!({"name": "pv-1", "spec": {"hostPath": {"path": folder}}}));
    bench.setup().unwrap();
    teardown(&bench.paths, "u1").unwrap();
    assert!(folder.join("old/file").exists(), "a persistent volume outlives its pods");
}

#[test]
fn provisioned_volume_is_made_once_and_below_the_nodes_root() {
    let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let Some(bench) = Bench::new(spec) else { return };
    let put = |path: &str| {
        let claim = json!({"metadata": {"uid": "c1"}, "spec": {}, "volume": {"name": "pvc-c1", "spec": {"local": {"path": path}}}});
        bench.put("PersistentVolumeClaim", "data", claim);
    };
    put("/var/lib/edge-runtime/volumes/pvc-c1");
    let folder = bench.paths.volumes().join("pvc-c1");
    assert_eq!(bench.setup().unwrap()["v"].path, folder);
    assert_eq!((mode(&folder), mode(&bench.paths.volumes())), (0o777, 0o700));
    fs::write(folder.join("file"), "x").unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    bench.setup().unwrap();
    assert_eq!(mode(&folder), 0o700, "what a pod made of it stays");
    teardown(&bench.paths, "u1").unwrap();
    assert!(folder.join("file").exists());
    // Nothing of the node's own can be had so, and nothing is made for it.
    for wrong in ["", "/", "/..", "/../identity", "/.trash", "/pvc-c1/file", "/a/b"] {
        put(&format!("/var/lib/edge-runtime/volumes{wrong}"));
        match bench.setup() {
            Ok(made) => assert!(!made["v"].path.starts_with(bench.paths.root()), "{wrong}"),
            Err(error) => assert!(error.to_string().contains("volume \"v\""), "{wrong}: {error}"),
        }
    }
    let left: Vec<_> = fs::read_dir(bench.paths.volumes()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["pvc-c1"]);
}

#[test]
fn a_large_volume_is_left_to_a_helper() {
    let spec = json!({"securityContext": {"fsGroup": 2000}, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let Some(bench) = Bench::new(spec) else { return };
    let folder = bench.temp.path().join("disk");
    fs::create_dir_all(folder.join("many")).unwrap();
    (0..1500).for_each(|i| fs::write(folder.join(format!("many/{i}")), "").unwrap());
    let spec = json!({"local": {"path": folder}});
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {}, "volume": {"name": "pv", "spec": spec}});
    bench.put("PersistentVolumeClaim", "data", claim);
    fs::create_dir_all(bench.paths.pod("u1")).unwrap();
    let error = bench.setup().unwrap_err();
    assert_eq!(error.reason(), "VolumePermissionChangeInProgress");
    let VolumeError::Owning(owning) = error else { panic!("{error}") };
    assert_ne!(fs::metadata(&folder).unwrap().gid(), 2000);
    owning.run().unwrap();
    assert!(fs::read_dir(folder.join("many")).unwrap().all(|file| file.unwrap().metadata().unwrap().gid() == 2000));
    // Once in the life of the pod.
    fs::write(folder.join("own"), "").unwrap();
    bench.setup().unwrap();
    assert_eq!(mode(&folder.join("own")) & 0o020, 0);
    fs::remove_dir_all(bench.paths.pod("u1")).unwrap();
    assert!(owning.run().is_err(), "nothing is left behind for a pod that has gone");
    assert!(!bench.paths.pod("u1").exists());
}

#[test]
fn an_object_cannot_write_outside_its_volume() {
    for key in ["../x", "/etc/x", "..data"] {
        let volume = json!({"volumes": [{"name": "v", "configMap": {"name": "app"}}]});
        let Some(bench) = Bench::new(volume) else { return };
        bench.put("ConfigMap", "app", json!({"data": {key: "bad"}}));
        assert!(matches!(bench.setup(), Err(VolumeError::Invalid { .. })), "{key}");
    }
}

#[test]
fn memory_volume_is_limited_to_its_pod() {
    let spec = json!({"volumes": [{"name": "mem", "emptyDir": {"medium": "Memory"}}]});
    for (limit, expected) in [(None, 64 << 20), (Some(2 << 20), 2 << 20), (Some(1 << 40), 64 << 20)] {
        let Some(mut bench) = Bench::new(spec.clone()) else { return };
        bench.facts.pod_memory_limit = limit;
        let made = bench.setup().unwrap();
        assert_eq!(crate::sys::host::disk_space(&made["mem"].path).unwrap().total_bytes, expected);
        teardown(&bench.paths, "u1").unwrap();
    }
}

#[test]
fn empty_dirs_keep_their_content_after_restarts() {
    let volumes = json!({"securityContext": {"fsGroup": 2000}, "volumes": [{"name": "disk", "emptyDir": {}},
        {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, {"name": "none"}]});
    let Some(bench) = Bench::new(volumes) else { return };
    let made = bench.setup().unwrap();
    assert_eq!(mode(&made["disk"].path), 0o2777);
    assert_eq!(fs::metadata(&made["disk"].path).unwrap().gid(), 2000);
    assert_eq!((mode(&made["mem"].path), fs::metadata(&made["mem"].path).unwrap().gid()), (0o3777, 2000));
    assert_eq!(crate::sys::host::disk_space(&made["mem"].path).unwrap().total_bytes, 1 << 20);
    for volume in made.values() {
        fs::write(volume.path.join("f"), "kept").unwrap();
        fs::set_permissions(&volume.path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(bench.setup().unwrap(), made);
    for volume in made.values() {
        assert_eq!(fs::read_to_string(volume.path.join("f")).unwrap(), "kept");
        assert_eq!(mode(&volume.path), 0o700);
    }
    assert_eq!(bench.mount_count(), 1);
    teardown(&bench.paths, "u1").unwrap();
    teardown(&bench.paths, "u1").unwrap();
    assert_eq!(bench.mount_count(), 0);
}

#[test]
fn host_paths_are_checked_by_type() {
    let host = tempfile::tempdir().unwrap();
    let file = host.path().join("file");
    fs::write(&file, "").unwrap();
    let at = |name: &str| host.path().join(name).display().to_string();
    let cases = [
        (at("file"), "", None),
        (at("made/deep"), "", None),
        (at("file"), "File", None),
        (at("file"), "Directory", Some("is not a directory")),
        (at("none"), "Directory", Some("is not a directory")),
        (at("new"), "DirectoryOrCreate", None),
        (at("new"), "Directory", None),
        (at("new.txt"), "FileOrCreate", None),
        (at("new"), "FileOrCreate", Some("is not a file")),
        (at("file"), "Socket", Some("is not a socket file")),
        ("/dev/null".into(), "CharDevice", None),
        ("/dev/null".into(), "BlockDevice", Some("is not a block device")),
        (at("../x"), "", Some("without '..'")),
        (at("file"), "Nonsense", Some("invalid volume type")),
    ];
    for (path, type_, problem) in cases {
        let volume = json!({"volumes": [{"name": "v", "hostPath": {"path": path, "type": type_}}]});
        let Some(bench) = Bench::new(volume) else { return };
        match (bench.setup(), problem) {
            (Ok(made), None) => assert_eq!(made["v"].path, Path::new(&path)),
            (Err(error), Some(problem)) => assert!(error.to_string().contains(problem), "{path} {type_}: {error}"),
            (result, _) => panic!("{path} {type_}: {result:?}"),
        }
    }
}

fn with_mounts(volumes: Value, mounts: Value) -> Option<Bench> {
    Bench::new(json!({"volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}]}))
}

#[test]
fn a_container_sees_volumes_and_files_parents_first() {
    let volumes = json!([{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "app"}}]);
    let mounts = json!([{"name": "tmp", "mountPath": "/etc/app/cache", "readOnly": true},
        {"name": "cfg", "mountPath": "/etc/app"}, {"name": "tmp", "mountPath": "/etc/hosts", "mountPropagation": "Bidirectional"}]);
    let Some(mut bench) = with_mounts(volumes, mounts) else { return };
    bench.put("ConfigMap", "app", json!({"data": {"a": "1"}}));
    assert!(bench.mounts().unwrap_err().to_string().contains("only to privileged containers"));
    let container = &mut bench.pod.spec.as_mut().unwrap().containers[0];
    container.security_context = Some(serde_json::from_value(json!({"privileged": true})).unwrap());
    let mounts = bench.mounts().unwrap();
    let targets: Vec<String> = mounts.iter().map(|mount| mount.target.display().to_string()).collect();
    let place = |target: &str| targets.iter().position(|one| one == target).unwrap();
    assert!(place("/etc/app") < place("/etc/app/cache"));
    assert_eq!(targets.iter().filter(|target| *target == "/etc/hosts").count(), 1);
    assert!(targets.contains(&"/dev/termination-log".to_string()) && !targets.contains(&"/dev/shm".to_string()));
    assert!(mounts[place("/etc/app")].read_only && mounts[place("/etc/app/cache")].read_only);
    assert_eq!(mounts[place("/etc/hosts")].propagation, Propagation::Bidirectional);
    assert!(mounts[place("/etc/app")].source.join("cache").is_dir(), "mount point inside the read-only volume");
    teardown(&bench.paths, "u1").unwrap();
}

#[test]
fn containers_of_one_pod_share_memory() {
    let Some(bench) = Bench::new(json!({"containers": [{"name": "a"}, {"name": "b"}]})) else { return };
    let shm = bench.mount_of("/dev/shm").source;
    assert_eq!(crate::sys::host::disk_space(&shm).unwrap().total_bytes, 64 << 20);
    assert_eq!(mode(&shm), 0o1777);
    teardown(&bench.paths, "u1").unwrap();
    assert_eq!(bench.mount_count(), 0);
}

#[test]
fn stop_lock_is_one_small_file_of_the_pod() {
    let Some(mut bench) = Bench::new(json!({})) else { return };
    let target = "/run/sampan/stop.lock";
    assert!(bench.mounts().unwrap().iter().all(|mount| mount.target != Path::new(target)), "no annotation asks for it");
    assert_eq!(bench.mount_count(), 0);
    bench.pod.metadata.annotations = Some(BTreeMap::from([("sampan.dev/stop-lock".into(), "1h".into())]));
    let file = bench.mount_of(target).source;
    assert_eq!(mode(&file), 0o666);
    assert!(fs::write(&file, vec![1; 1 << 20]).is_err(), "it has one page");
    let found = |file: &Path| fs::metadata(file).unwrap().ino();
    assert_eq!(found(&bench.mount_of(target).source), found(&file), "the next container has the same");
    assert_eq!(bench.mount_count(), 1);
    teardown(&bench.paths, "u1").unwrap();
    assert_eq!(bench.mount_count(), 0);
}

#[test]
fn sub_paths_are_made_and_mounted() {
    let volumes = json!([{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "app"}}]);
    let mounts = json!([{"name": "tmp", "mountPath": "/a", "subPath": "x/y"},
        {"name": "cfg", "mountPath": "/b", "subPath": "file"}, {"name": "tmp", "mountPath": "/c", "subPathExpr": "$(POD)/z"}]);
    let Some(bench) = with_mounts(volumes, mounts) else { return };
    bench.put("ConfigMap", "app", json!({"data": {"file": "1"}}));
    let tmp = bench.setup().unwrap()["tmp"].path.clone();
    // Twice: a restarted container gets the same again.
    for _ in 0..2 {
        let dir = bench.mount_of("/a").source;
        fs::write(dir.join("f"), "inside").unwrap();
        assert_eq!(fs::read_to_string(tmp.join("x/y/f")).unwrap(), "inside");
        assert_eq!(mode(&tmp.join("x/y")), 0o777);
        assert_eq!(fs::read_to_string(bench.mount_of("/b").source).unwrap(), "1");
        assert!(tmp.join("web-0/z").is_dir());
        assert_eq!(bench.mount_count(), 4);
    }
    teardown(&bench.paths, "u1").unwrap();
    assert_eq!(bench.mount_count(), 0);
    assert!(!bench.paths.pod("u1").join("volumes").exists());
}

#[test]
fn sub_paths_cannot_leave_their_volume() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("secret"), "x").unwrap();
    for sub_path in ["../../x", "/etc", "link/secret", "link/new", "up/x", "magic/etc", "dangling"] {
        let mounts = json!([{"name": "tmp", "mountPath": "/a", "subPath": sub_path}]);
        let Some(bench) = with_mounts(json!([{"name": "tmp", "emptyDir": {}}]), mounts) else { return };
        let tmp = bench.setup().unwrap()["tmp"].path.clone();
        symlink(host.path(), tmp.join("link")).unwrap();
        symlink("../..", tmp.join("up")).unwrap();
        symlink("/proc/self/root", tmp.join("magic")).unwrap();
        symlink(host.path().join("created"), tmp.join("dangling")).unwrap();
        let result = bench.mounts();
        assert!(result.is_err(), "{sub_path}: {result:?}");
        assert!(!host.path().join("new").exists() && !host.path().join("created").exists());
        teardown(&bench.paths, "u1").unwrap();
        assert!(host.path().join("secret").exists());
    }
}

#[test]
fn links_inside_the_volume_may_be_used() {
    let mounts = json!([{"name": "tmp", "mountPath": "/a", "subPath": "current"}]);
    let Some(bench) = with_mounts(json!([{"name": "tmp", "emptyDir": {}}]), mounts) else { return };
    let tmp = bench.setup().unwrap()["tmp"].path.clone();
    fs::create_dir(tmp.join("v1")).unwrap();
    symlink("v1", tmp.join("current")).unwrap();
    fs::write(bench.mount_of("/a").source.join("f"), "").unwrap();
    assert!(tmp.join("v1/f").exists());
    teardown(&bench.paths, "u1").unwrap();
}

#[test]
fn teardown_spares_everything_that_is_not_the_pods() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir_all(host.path().join("data/deep")).unwrap();
    fs::write(host.path().join("data/deep/precious"), "x").unwrap();
    let volumes = json!([{"name": "host", "hostPath": {"path": host.path()}}, {"name": "tmp", "emptyDir": {}},
        {"name": "mem", "emptyDir": {"medium": "Memory"}}]);
    let mounts = json!([{"name": "host", "mountPath": "/h", "subPath": "data"}, {"name": "host", "mountPath": "/w"}]);
    let Some(bench) = with_mounts(volumes, mounts) else { return };
    let made = bench.setup().unwrap();
    let source = bench.mount_of("/h").source;
    assert!(source.join("deep/precious").exists());
    // Mounts that a privileged container may have propagated: host data inside its volumes, stacked, on a tmpfs.
    let bind = |from: &Path, to: &Path| {
        mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    };
    let data = host.path().join("data");
    for place in [made["tmp"].path.join("in"), made["mem"].path.join("in put")] {
        fs::create_dir(&place).unwrap();
        bind(&data, &place);
        bind(&data, &place);
        bind(&data, &place.join("deep"));
    }
    // Links out of the pod, to a folder and from where a folder is expected.
    symlink(host.path(), made["tmp"].path.join("link")).unwrap();
    symlink(&data, made["tmp"].path.join("..x")).unwrap();
    // A mount of another part of the pod's folder is not ours to touch.
    let writable = bench.paths.pod("u1").join("containers");
    fs::create_dir(&writable).unwrap();
    bind(&data, &writable);

    teardown(&bench.paths, "u1").unwrap();
    assert_eq!(fs::read_to_string(host.path().join("data/deep/precious")).unwrap(), "x");
    assert!(writable.join("deep/precious").exists());
    assert_eq!(bench.mount_count(), 1);
    for name in ["volumes", "objects", "subpaths", "shm"] {
        assert!(!bench.paths.pod("u1").join(name).exists(), "{name}");
    }
    teardown(&bench.paths, "u1").unwrap();
    nix::mount::umount(&writable).unwrap();
}

#[test]
fn deleting_alone_would_not_cross_a_mount() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("precious"), "x").unwrap();
    let Some(bench) = Bench::new(json!({"volumes": [{"name": "tmp", "emptyDir": {}}]})) else { return };
    let place = bench.setup().unwrap()["tmp"].path.join("deep/er");
    fs::create_dir_all(&place).unwrap();
    mount(Some(host.path()), &place, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    assert!(crate::sys::delete::delete_tree(&bench.paths.pod("u1")).is_err());
    assert!(host.path().join("precious").exists());
    teardown(&bench.paths, "u1").unwrap();
}

#[test]
fn a_volumes_folder_replaced_by_a_link_is_not_followed() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("precious"), "x").unwrap();
    let Some(bench) = Bench::new(json!({"volumes": [{"name": "tmp", "emptyDir": {}}]})) else { return };
    bench.setup().unwrap();
    let volumes = bench.paths.pod("u1").join("volumes");
    fs::rename(&volumes, bench.paths.pod("u1").join("aside")).unwrap();
    symlink(host.path(), &volumes).unwrap();
    let _ = teardown(&bench.paths, "u1");
    assert!(host.path().join("precious").exists());
}

#[test]
fn a_uid_that_is_a_path_is_refused() {
    let paths = Paths::new(Path::new("/nowhere"));
    for uid in ["", ".", "..", "../u1", "a/b"] {
        assert!(teardown(&paths, uid).is_err(), "{uid}");
    }
    teardown(&paths, "u1").unwrap();
}

/// `cargo test -p edge-runtime volume::tests::fifty -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn fifty_pods_cost() {
    let volumes = json!([{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "app"}},
        {"name": "key", "secret": {"secretName": "tls"}}]);
    let Some(mut bench) = with_mounts(volumes, json!([{"name": "tmp", "mountPath": "/a"}])) else { return };
    bench.put("ConfigMap", "app", json!({"data": {"a": "1", "b": "2"}}));
    bench.put("Secret", "tls", json!({"data": {"k": "c2VjcmV0"}}));
    let uids: Vec<String> = (0..50).map(|n| format!("u{n}")).collect();
    let mut timed = |what: &str, work: &dyn Fn(&Bench)| {
        let start = std::time::Instant::now();
        for uid in &uids {
            bench.pod.metadata.uid = Some(uid.clone());
            work(&bench);
        }
        eprintln!("{what}: {:?} per pod", start.elapsed() / 50);
    };
    timed("setup", &|bench| drop(bench.setup().unwrap()));
    timed("mounts", &|bench| drop(bench.mounts().unwrap()));
    timed("update", &|bench| drop(bench.with(update).unwrap()));
    timed("teardown", &|bench| teardown(&bench.paths, bench.pod.metadata.uid.as_deref().unwrap()).unwrap());
}
