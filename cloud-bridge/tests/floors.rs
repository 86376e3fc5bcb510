//! What the bridge's crates may depend on, and that no circle of their files is large.

use std::path::Path;

use sampan_floors::{behind_wall, circles};

/// Crates of ours and what may not be found among all that they depend on.
const WALLS: [(&str, &[&str]); 4] = [
    // Below everything else.
    ("sampan-apimachinery", &["sampan-kubelet-api", "sampan-apiserver", "kube", "hyper"]),
    // The code that serves the kubelet API of a node is independent of the bridge and of the embedded API.
    ("sampan-kubelet-api", &["sampan-apiserver", "cloud-bridge", "kube", "rusqlite"]),
    // What runs strangers' rules has nothing to lose.
    ("sampan-cel", &["sampan-apiserver", "sampan-apimachinery", "cloud-bridge", "kube", "tokio", "rusqlite", "rustls"]),
    // A controller works on any cluster, through a client.
    ("sampan-controller-manager", &["sampan-apiserver", "cloud-bridge", "rusqlite"]),
];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn circles_of_files_are_small() {
    let crates = [".", "apimachinery", "kubelet-api", "controller-manager", "cel", "../edge-protocol"];
    let wrong: Vec<String> = crates.iter().flat_map(|one| circles(&here().join(one), 3)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_walls_of_the_crates_hold() {
    for (own, forbidden) in WALLS {
        let found = behind_wall(here(), own, forbidden);
        assert!(found.is_empty(), "{own} depends on {found:?}");
    }
}
