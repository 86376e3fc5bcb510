//! The layers of this crate in `ARCHITECTURE.md`, checked against the sources: a folder imports only those below it.

use std::path::Path;

use sampan_floors::upward;

#[test]
fn no_folder_imports_upward() {
    let wrong = upward(Path::new(env!("CARGO_MANIFEST_DIR")), "apiserver");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
