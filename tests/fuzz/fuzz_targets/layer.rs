//! A layer from any registry: compressed or not, a tar or not. Nothing may be created outside its folder, and
//! everything that is created must be removable.
#![no_main]

use std::path::Path;

use edge_runtime::image::compress::plain;
use edge_runtime::image::limits::Limits;
use edge_runtime::image::unpack::unpack;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let Ok(temp) = tempfile::Builder::new().prefix("sampan-fuzz-").tempdir_in(folder) else { return };
    let (root, beside) = (temp.path().join("layer"), temp.path().join("beside"));
    for path in [&root, &beside] {
        std::fs::create_dir(path).expect("a folder");
    }
    let limits = Limits { entries: 200, layer_bytes: 1 << 20, ..Limits::default() };
    if let Ok(reader) = plain(data) {
        let _ = unpack(reader, &root, &limits);
    }
    assert_eq!(std::fs::read_dir(&beside).expect("it is still there").count(), 0, "a layer wrote outside of its folder");
    let all = std::fs::read_dir(temp.path()).expect("it is still there").count();
    assert_eq!(all, 2, "a layer wrote beside its folder");
    sampan_sys::delete::delete_tree(&root).expect("what was unpacked can be deleted");
});
