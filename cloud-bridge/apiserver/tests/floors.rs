//! The map of this crate in `ARCHITECTURE.md`, checked: a floor imports those below it only, and no circle of files is
//! large.

use std::path::Path;

use sampan_floors::{circles, upward};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_floor_imports_a_higher_one() {
    let wrong = upward(here(), "apiserver");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_circle_of_files_is_large() {
    let wrong = circles(here(), 3);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
