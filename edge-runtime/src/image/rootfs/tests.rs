//! Mounts with the real kernel; skipped without root.

use std::fs;

use super::*;

struct Dirs {
    temp: tempfile::TempDir,
    layers: PathBuf,
    ids: Vec<String>,
}

impl Dirs {
    /// `count` layers, each with a file of its number and a file `top` that says the number.
    fn new(count: usize, prefix: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        let temp = tempfile::Builder::new().prefix(prefix).tempdir().unwrap();
        let layers = temp.path().join("layers");
        let ids: Vec<String> = (0..count).map(|i| format!("sha256:{i:064x}")).collect();
        fs::create_dir(&layers).unwrap();
        for (i, id) in ids.iter().enumerate() {
            let dir = layers.join(hex(id));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(format!("file-{i}")), "").unwrap();
            fs::write(dir.join("top"), i.to_string()).unwrap();
        }
        for name in ["upper", "work", "target"] {
            fs::create_dir(temp.path().join(name)).unwrap();
        }
        Some(Self { temp, layers, ids })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn mount(&self) -> Result<(), ImageError> {
        mount_rootfs(&self.layers, &self.ids, &self.path("upper"), &self.path("work"), &self.path("target"), None)
    }
}

impl Drop for Dirs {
    fn drop(&mut self) {
        let _ = unmount_rootfs(&self.path("target"));
    }
}

#[test]
fn layers_alone_cannot_be_written_to() {
    for (count, prefix) in [(0, "image-"), (1, "image-"), (3, "im:age,-")] {
        let Some(dirs) = Dirs::new(count, prefix) else { return };
        let target = dirs.path("target");
        mount_layers(&dirs.layers, &dirs.ids, None, &target, None).unwrap();
        mount_layers(&dirs.layers, &dirs.ids, None, &target, None).unwrap();
        if count > 0 {
            assert_eq!(fs::read_to_string(target.join("top")).unwrap(), (count - 1).to_string());
            assert!(fs::write(target.join("new"), "x").is_err(), "{count} layers");
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), if count > 0 { count + 1 } else { 0 });
    }
}

#[test]
fn layers_stack_and_writes_go_to_the_writable_layer() {
    for (count, prefix) in [(1, "rootfs-"), (3, "rootfs-"), (100, "rootfs-"), (2, "root:fs,-\\")] {
        let Some(dirs) = Dirs::new(count, prefix) else { return };
        dirs.mount().unwrap();
        let target = dirs.path("target");
        assert_eq!(fs::read_to_string(target.join("top")).unwrap(), (count - 1).to_string());
        assert!(target.join("file-0").exists());
        fs::write(target.join("new"), "x").unwrap();
        fs::remove_file(target.join("file-0")).unwrap();
        assert!(dirs.path("upper/new").exists() && dirs.layers.join(hex(&dirs.ids[0])).join("file-0").exists());
        dirs.mount().expect("a second mount is the first");
        unmount_rootfs(&target).unwrap();
        assert!(!target.join("new").exists(), "unmounted, and mounted only once");
        unmount_rootfs(&target).unwrap();
        dirs.mount().expect("the same folders mount again");
        assert!(target.join("new").exists());
    }
}

#[test]
fn an_image_without_layers_is_the_writable_layer() {
    let Some(dirs) = Dirs::new(0, "rootfs-") else { return };
    let target = dirs.path("target");
    dirs.mount().unwrap();
    dirs.mount().expect("a second mount is the first");
    fs::write(target.join("new"), "x").unwrap();
    assert!(dirs.path("upper/new").exists());
    unmount_rootfs(&target).unwrap();
    assert!(!target.join("new").exists(), "mounted only once");
    unmount_rootfs(&dirs.path("never-there")).unwrap();
}

#[test]
fn a_missing_layer_is_named() {
    let Some(mut dirs) = Dirs::new(2, "rootfs-") else { return };
    let gone = format!("sha256:{:064x}", 77);
    dirs.ids.push(gone.clone());
    let error = dirs.mount().unwrap_err().to_string();
    assert!(error.contains(hex(&gone)) && error.contains("pulled again"), "{error}");
    dirs.ids = vec!["../../etc".to_owned()];
    assert!(dirs.mount().is_err());
}

#[test]
fn state_folder_on_an_overlay_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        fs::create_dir(temp.path().join(name)).unwrap();
        temp.path().join(name)
    };
    let Ok(None) = refused(temp.path()) else { return };
    let (lower, upper, work, state) = (folder("l"), folder("u"), folder("w"), folder("state"));
    overlay(&[lower], Some([&upper, &work]), &state, "").unwrap();
    let found = refused(&state);
    unmount(&state).unwrap();
    // Nothing stays of the trial.
    assert_eq!(fs::read_dir(&upper).unwrap().count(), 0);
    assert!(found.unwrap().is_some());
}
