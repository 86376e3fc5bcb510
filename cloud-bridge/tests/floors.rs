//! Allowed dependencies of the bridge's crates, its layers in `ARCHITECTURE.md`, and a limit of cyclic imports of files.

use std::path::Path;

use sampan_floors::{Paths, behind_wall, circles, sources::product_code, upward, upward_in};

/// Crates, and those that must not be among all of their dependencies.
const WALLS: [(&str, &[&str]); 4] = [
    // The lowest layer.
    ("sampan-apimachinery", &["edge-protocol", "sampan-kubelet-api", "sampan-apiserver", "kube", "hyper"]),
    // The code that serves the kubelet API of a node is independent of the bridge and of the embedded API.
    ("sampan-kubelet-api", &["sampan-apiserver", "cloud-bridge", "kube", "rusqlite"]),
    // The process that evaluates rules of any user has no access to anything.
    ("sampan-cel", &["sampan-apiserver", "sampan-apimachinery", "cloud-bridge", "kube", "tokio", "rusqlite", "rustls"]),
    // A controller works on any cluster, through a client.
    ("sampan-controller-manager", &["sampan-apiserver", "cloud-bridge", "rusqlite"]),
];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_module_imports_upward() {
    let mut wrong = upward(here(), "cloud-bridge");
    wrong.extend(upward_in(here(), "bridge", "bridge"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn circles_of_files_are_small() {
    let crates = ["apimachinery", "kubelet-api", "apiserver", "controller-manager", "cel", "../edge-protocol"];
    let mut wrong: Vec<String> = crates.iter().flat_map(|one| circles(&here().join(one), 3, Paths::Calls)).collect();
    // Not one in the bridge itself.
    wrong.extend(circles(here(), 1, Paths::Calls));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_walls_of_the_crates_hold() {
    for (own, forbidden) in WALLS {
        let found = behind_wall(here(), own, forbidden);
        assert!(found.is_empty(), "{own} depends on {found:?}");
    }
}

/// A board without a battery boots in 1970: `apimachinery::clock` judges certificates and tokens.
#[test]
fn expiry_is_judged_by_the_floored_clock() {
    // The wall clock that wrote a deletion time also judges it.
    let allowed = |path: &Path| usize::from(path.ends_with("auth/accounts/identity.rs"));
    for folder in ["src/pki", "src/listen", "src/kubelet", "apiserver/src/auth", "apiserver/src/registry/subresource"] {
        for (path, code) in product_code(&here().join(folder)) {
            let found: usize =
                ["SystemTime::now()", "Timestamp::now()"].map(|call| code.matches(call).count()).iter().sum();
            assert!(found <= allowed(&path), "{}", path.display());
        }
    }
}
