//! Compares the layers of ARCHITECTURE.md with the sources: which folder imports from which, which files import each
//! other in a circle, and the dependencies of the other crates.

use std::path::Path;

use sampan_floors::{Paths, behind_wall, circles, upward};

/// Crates of this project and their forbidden dependencies, direct or indirect.
const WALLS: [(&str, &[&str]); 5] = [
    // Decisions: no I/O.
    ("sampan-pod", &["edge-protocol", "smol", "nix", "rusqlite", "rustls", "tokio", "async-io"]),
    // The process that must never grow: no store, no link, no TLS, no API types.
    (
        "sampan-monitor",
        &["rusqlite", "rustls", "async-tungstenite", "ureq", "edge-protocol", "k8s-openapi", "sampan-pod"],
    ),
    // Knows no message that it carries.
    ("sampan-grpc", &["edge-protocol", "sampan-devices-control", "sampan-dmi", "prost", "k8s-openapi"]),
    // Is in the smallest helper, too: nothing that only one of them needs.
    (
        "sampan-helper",
        &[
            "sampan-api-control",
            "sampan-devices-control",
            "sampan-plugins-control",
            "sampan-grpc",
            "sampan-pod",
            "rustls",
            "hyper",
            "jiff",
        ],
    ),
    // Knows nothing of pods.
    ("sampan-sys", &["edge-protocol", "k8s-openapi", "sampan-pod", "rusqlite", "rustls"]),
];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_folder_imports_upward() {
    let wrong = upward(here(), "edge-runtime");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn circles_of_files_are_small() {
    let crates = [
        (".", 2),
        // The table of verbs, and the verbs that read it.
        ("admin", 4),
        ("api", 2),
        ("devices", 2),
        ("grpc", 2),
        ("grpc/nghttp2", 3),
        ("helper", 2),
        ("monitor", 3),
        ("plugins", 2),
        ("pod", 3),
        ("sys", 3),
        ("../tests/sim", 3),
    ];
    let circles = |(one, most): &(&str, usize)| circles(&here().join(one), *most, Paths::Calls);
    let wrong: Vec<String> = crates.iter().flat_map(circles).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_walls_of_the_crates_hold() {
    for (own, forbidden) in WALLS {
        let found = behind_wall(here(), own, forbidden);
        assert!(found.is_empty(), "{own} depends on {found:?}");
    }
}
